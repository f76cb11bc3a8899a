"""Every switch makes an engine do something else, where its fault can show and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specbench import demo
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.faults import FAULTS, SHORT_TABLE, inject
from specbench.engine.graphs import GraphMode
from specbench.engine.pair import ModelPair
from specbench.errors import ConfigError
from specbench.request import Request, SamplingParams
from specbench.workload import load_workload

CONFIG = EngineConfig(dtype="float32", kernels="torch", max_len=192, prefill_chunk=16)
TREE = SpecConfig(num_steps=4, topk=2, num_draft_tokens=10)
TREES = ("siblings_seen", "no_compaction")
REPLAYED = ("graph_default_replayed", "stale_replayed")
TOKENS = 24


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return ModelPair.load(demo.TARGET, demo.DRAFT, CONFIG)


def requests(pair: ModelPair, count: int = 2, length: int = 40) -> list[Request]:
    """Prompts as ids, all of them longer than a chunk."""
    sampling = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
    known = load_workload("default").requests(24, sampling)
    prompts = [ids for r in known if len(ids := pair.codec.prompt_ids(r)) >= length]
    return [
        Request(request_id=str(i), prompt_ids=ids[:length], sampling=sampling)
        for i, ids in enumerate(prompts[:count])
    ]


class Noted(list[tuple[object, ...]]):
    """What an engine drafts, accepts and caches, step by step."""


@torch.inference_mode()
def run(
    pair: ModelPair,
    asked: list[Request],
    fault: str = "",
    *,
    spec: SpecConfig = SpecConfig.chain(3),  # noqa: B008  # frozen
    batch: int = 1,
    mode: GraphMode = GraphMode.EAGER,
    reuse: bool = False,
) -> Noted:
    config = replace(CONFIG, max_batch_size=batch, prefix_reuse=reuse)
    engine = Engine(pair, config, mode)
    engine.configure(spec, batch)
    if fault:
        inject(engine, fault)
    assert isinstance(engine.drafter, Eagle3Drafter)
    noted, propose = Noted(), engine.drafter.propose

    def watched(batch: object) -> object:
        tree = propose(batch)  # type: ignore[arg-type]  # passed on as it came
        noted.append((tree.tokens.tolist(), tree.parents.tolist()))
        return tree

    engine.drafter.propose = watched  # type: ignore[method-assign,assignment]
    assert engine.memory.draft is not None
    waiting = list(asked)
    while waiting or not engine.idle:
        if waiting and (engine.idle or batch > 1):
            engine.submit(waiting.pop(0))
        for emission in engine.step():
            if emission.finish is not None:
                noted.append((emission.output_ids,))
                rows = engine.memory.draft.values[0, 0, :, :40]
                noted.append((rows.double().sum(-1).round(decimals=4).tolist(),))
    return noted


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f not in (*TREES, *REPLAYED, "swapped_lanes", "cached_border")]
)
def test_a_switch_changes_what_a_chain_does(pair: ModelPair, fault: str) -> None:
    length = SHORT_TABLE + 16 if fault == "short_table" else 40
    asked = requests(pair, length=length)
    assert run(pair, asked, fault) != run(pair, asked)


@pytest.mark.parametrize("fault", TREES)
def test_a_fault_of_trees_spares_chains(pair: ModelPair, fault: str) -> None:
    asked = requests(pair)
    assert run(pair, asked, fault) == run(pair, asked)
    assert run(pair, asked, fault, spec=TREE) != run(pair, asked, spec=TREE)


@pytest.mark.parametrize("fault", REPLAYED)
def test_a_fault_of_graphs_spares_eager_runs(pair: ModelPair, fault: str) -> None:
    asked, mode = requests(pair), GraphMode.EMULATED
    assert run(pair, asked, fault) == run(pair, asked)
    assert run(pair, asked, fault, mode=mode) != run(pair, asked, mode=mode)


def test_swapped_lanes_need_a_batch(pair: ModelPair) -> None:
    asked = requests(pair)
    assert run(pair, asked, "swapped_lanes") == run(pair, asked)
    assert run(pair, asked, "swapped_lanes", batch=2) != run(pair, asked, batch=2)


def test_a_cached_border_needs_a_reused_prefix(pair: ModelPair) -> None:
    first, second = requests(pair)
    assert first.prompt_ids is not None
    assert second.prompt_ids is not None
    parting = replace(
        second,
        prompt_ids=(*first.prompt_ids[:30], 7 + first.prompt_ids[30], *second.prompt_ids[:9]),
    )
    asked = [first, parting]
    assert run(pair, asked, "cached_border") == run(pair, asked)
    assert run(pair, asked, "cached_border", reuse=True) != run(pair, asked, reuse=True)


def test_late_positions_are_the_same_in_a_padded_batch(pair: ModelPair) -> None:
    """Three requests in lanes of four: what a graph is captured for."""
    asked = requests(pair, 3)
    exact, padded = (
        [noted[0] for noted in run(pair, asked, "decode_shift", batch=4, mode=mode) if noted[1:]]
        for mode in (GraphMode.EAGER, GraphMode.EMULATED)
    )
    assert [len(tokens) for tokens in padded if len(tokens) == 4]  # type: ignore[arg-type]
    assert [tokens[: len(own)] for own, tokens in zip(exact, padded, strict=True)] == exact  # type: ignore[arg-type,index]


def test_an_unknown_fault_and_a_baseline_are_refused(pair: ModelPair) -> None:
    engine = Engine(pair, CONFIG)
    with pytest.raises(ConfigError, match="needs an engine that drafts"):
        inject(engine, "theta")
    with pytest.raises(ConfigError, match="is no fault"):
        inject(engine, "thta")
