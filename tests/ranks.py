"""Processes that are ranks of each other, for tests; and the work that they and one process do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from specbench.checkpoint import read_target
from specbench.config import EngineConfig, SpecConfig
from specbench.engine import engine as engine_module
from specbench.engine import verify as verification
from specbench.engine.engine import Engine
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.weights import load_tensors
from specbench.engine.pair import ModelPair
from specbench.engine.parallel import Ranks
from specbench.engine.parallel_check import RankDisagreement
from specbench.engine.parallel_follow import Folders, load_share
from specbench.engine.parallel_models import ShardedMaker
from tests.drive import drive, new_request, prompts
from tests.families import Loaded, load
from tests.tiny import TinyPair

TIMEOUT_S = 60.0  # of one collective: a rank that hangs is given up by the others
ALL_S = 300.0  # of everything, a slow start on a busy machine included
CPU = torch.device("cpu")
CONFIG = EngineConfig(dtype="float32", kernels="torch", max_len=160, max_batch_size=2)
PLAIN, CHAIN = SpecConfig.baseline(), SpecConfig.chain(3)
TREE = SpecConfig(num_steps=3, topk=2, num_draft_tokens=8)
TEXT = [(j * 7 + 5) % 250 for j in range(19)]
Work = Callable[..., dict[str, Any]]
Runs = dict[str, tuple[TinyPair, tuple[SpecConfig, ...]]]  # by name: a pair and its points


def on_ranks(count: int, folder: Path, work: Work, *given: Any) -> list[dict[str, Any]]:
    """What ``work(ranks, *given)`` returns in each of ``count`` processes, by rank.

    Fails the test when a rank fails or hangs, or all together take more than ``ALL_S``.
    """
    context = spawn(  # type: ignore[no-untyped-call]
        _one, (count, folder, work, given), nprocs=count, join=False
    )
    assert context is not None
    until = time.perf_counter_ns() + 1e9 * ALL_S
    while not context.join(timeout=1.0):
        if time.perf_counter_ns() > until:
            for process in context.processes:
                process.kill()
            pytest.fail(f"{count} ranks were not done within {ALL_S:.0f} s")
    return [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(count)]


def _one(rank: int, count: int, folder: Path, work: Work, given: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    ranks = Ranks.join(folder / "meeting", rank, count, "cpu", TIMEOUT_S)
    found = json.dumps(work(ranks, *given))
    (folder / f"{rank}.json").write_text(found, "utf-8")
    ranks.leave()


def all_work(ranks: Ranks, families: dict[str, Path], runs: Runs) -> dict[str, Any]:
    """What ranks do: what one process does too, and then their faults on the first pair."""
    faults = {"partial sum": partial_sum, "other token": other_token, "other draft": other_draft}
    pair, _ = next(iter(runs.values()))
    return whole_work(ranks, families, runs) | {
        f"fault {name}": caught(pair, ranks, fault) for name, fault in faults.items()
    }


def whole_work(ranks: Ranks | None, families: dict[str, Path], runs: Runs) -> dict[str, Any]:
    """Forwards of all families and texts of all runs; of one process when ``ranks`` is None."""
    found: dict[str, Any] = {}
    for name, folder in families.items():
        found |= {f"{name} {key}": value for key, value in forward(folder, ranks).items()}
    for name, (pair, points) in runs.items():
        engine = engine_of(pair, ranks)
        for point in points:
            found[f"{name} {point.point_id}"] = texts(engine, point)
    return found


@torch.inference_mode()
def forward(folder: Path, ranks: Ranks | None) -> dict[str, list[list[float]]]:
    """All captured features of ``TEXT`` [rows, (n + 1)·H], and the logits of its last row [1, V].

    As lists: json keeps every bit of a float32.
    """
    loaded = load(folder, torch.float32) if ranks is None else load_shard(folder, ranks)
    scores = loaded.runner(loaded.pool()).prefill(0, 0, TEXT, last=True)
    return {"features": scores.features.tolist(), "logits": scores.logits.tolist()}


def load_shard(folder: Path, ranks: Ranks) -> Loaded:
    """One rank's share of a target that captures every layer."""
    spec, opened = read_target(folder)
    maker = ShardedMaker(ranks)
    maker.check(spec, None)
    tensors = load_tensors(opened, torch.float32, CPU, maker.part(spec))
    target = maker.target(spec, tensors, tuple(range(spec.n_layers + 1)))
    return Loaded(target.spec, target, torch.float32)


def engine_of(pair: TinyPair, ranks: Ranks | None) -> Engine:
    """An engine in one process, or this rank's of several."""
    if ranks is None:
        return Engine(ModelPair.load(pair.target, pair.draft, CONFIG), CONFIG)
    share = load_share(ranks, Folders(target=pair.target, draft=pair.draft), CONFIG)
    return Engine(share, replace(CONFIG, tensor_parallel=ranks.count))


def texts(engine: Engine, point: SpecConfig) -> list[Any]:
    """Output ids of two requests in two lanes, and what was accepted in each of their steps."""
    engine.configure(point, 2)
    outcomes = drive(engine, [new_request(f"r{i}", p, 8) for i, p in enumerate(prompts(2))])
    return [[list(o.ids), [step.accepted for step in o.steps]] for o in outcomes]


def caught(
    pair: TinyPair, ranks: Ranks, fault: Callable[[Engine, Ranks, pytest.MonkeyPatch], None]
) -> dict[str, Any]:
    """The error that ``fault``, there from the third cycle on, leads to; empty without one."""
    engine = engine_of(pair, ranks)
    engine.configure(CHAIN, 2)
    with pytest.MonkeyPatch.context() as patch:
        fault(engine, ranks, patch)
        try:
            drive(engine, [new_request("steady", prompts(2)[1])])
        except RankDisagreement as error:
            told = {"rank": error.rank, "cycle": error.cycle, "request": error.request}
            return {**told, "text": str(error)}
    return {}


def partial_sum(engine: Engine, ranks: Ranks, patch: pytest.MonkeyPatch) -> None:
    """Layer 2's input is captured before the all-reduce behind layer 1 (F34), on all ranks."""
    target = engine.pair.target
    assert isinstance(target, LlamaTarget)
    down, whole, calls = target.blocks[1].down, engine.runner.verify, [0]
    kept: list[Tensor] = []

    def add_to(total: Tensor, x: Tensor) -> None:
        kept[:] = [total + x @ down.matrix]
        type(down).add_to(down, total, x)

    def verify(*given: Any) -> Any:
        scores = whole(*given)
        calls[0] += 1
        if calls[0] >= 3:
            width = target.spec.shape.hidden
            scores.features[:, width : 2 * width] = kept[0]
        return scores

    stand_in = type("PartialSum", (), {"add_to": staticmethod(add_to)})
    patch.setattr(target.blocks[1], "down", stand_in)
    patch.setattr(engine.runner, "verify", verify)


def other_token(engine: Engine, ranks: Ranks, patch: pytest.MonkeyPatch) -> None:
    """The last rank chooses another bonus token from the third cycle on (F35)."""
    real, calls = verification.verify, [0]

    def verify(*given: Any) -> Any:
        verdicts = real(*given)
        calls[0] += 1
        if ranks.rank == ranks.count - 1 and calls[0] >= 3:
            verdicts = [replace(v, tokens=(*v.tokens[:-1], 7)) for v in verdicts]
        return verdicts

    patch.setattr(engine_module, "verify", verify)


def other_draft(engine: Engine, ranks: Ranks, patch: pytest.MonkeyPatch) -> None:
    """Rank 1 maps drafted ids to other tokens than the rest do."""
    real, calls = engine.drafter.propose, [0]

    def propose(*given: Any) -> Any:
        tree = real(*given)
        calls[0] += 1
        if ranks.rank == 1 and calls[0] >= 3:
            tree.tokens[:, 1:] += 1
        return tree

    patch.setattr(engine.drafter, "propose", propose)
