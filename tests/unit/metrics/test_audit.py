"""The losslessness audit against real faults, put into a running engine on a tiny pair."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.config import SpecConfig
from specbench.engine import engine as engine_module
from specbench.engine.engine import Engine
from specbench.engine.sampling import Chooser
from specbench.engine.tree import Tree
from specbench.engine.verify import Verdict as Step
from specbench.engine.verify import verify
from specbench.metrics.lossless import Lossless, Verdict, judge
from specbench.request import Request
from specbench.trace import Evidence, Finish, RequestTrace
from tests.drive import drive, new_engine, new_request, prompts
from tests.tiny import shared_pair
from tests.toy import filtered_probs


@pytest.fixture(scope="module")
def engine() -> Engine:
    return new_engine(shared_pair(), max_batch_size=4)


def run(engine: Engine, spec: SpecConfig, asked: Sequence[Request]) -> list[RequestTrace]:
    engine.configure(spec, 4)
    outcomes = drive(engine, asked, audit=False)
    return [
        RequestTrace(
            request=request,
            due_ns=0,
            sent_ns=0,
            end_ns=1,
            chunks=tuple(outcome.chunks),
            steps=tuple(outcome.steps),
            finish=outcome.finish or Finish.ERROR,
            evidence=Evidence.STEPS,
            usage=outcome.usage,
            output_ids=outcome.ids,
        )
        for request, outcome in zip(asked, outcomes, strict=True)
    ]


def greedy() -> list[Request]:
    return [new_request(f"r{i}", prompt) for i, prompt in enumerate(prompts(6))]


def sampled(seed: int, count: int = 80) -> list[Request]:
    """One prompt many times, so that its next tokens are counted."""
    asked = prompts(3)[2]
    return [
        new_request(f"s{i}", asked, 6, temperature=0.8, seed=1000 * seed + i, ignore_eos=True)
        for i in range(count)
    ]


def audit(engine: Engine, spec: SpecConfig, arm: list[RequestTrace] | None = None) -> Lossless:
    plain = run(engine, SpecConfig.baseline(), greedy())
    return judge(plain, arm or run(engine, spec, greedy()), gap=engine.top2_gap)


def test_a_sound_engine_is_exact(engine: Engine) -> None:
    verdict = audit(engine, SpecConfig.chain(3))
    assert (verdict.verdict, verdict.compared) == (Verdict.EXACT, 6)


def test_an_off_by_one_verifier_is_lossy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps one draft more than the target agreed to."""

    def generous(
        logits: torch.Tensor, tree: Tree, choosers: Sequence[Chooser], *_: object
    ) -> list[Step]:
        steps, nodes = verify(logits, tree, choosers), tree.tokens.shape[1]
        best = logits.argmax(-1).tolist()
        found = []
        for lane, step in enumerate(steps):
            node = len(step.path)
            if nodes > 1 and node < nodes:
                draft = int(tree.tokens[lane, node])
                tokens = (*step.tokens[:-1], draft, best[lane * nodes + node])
                step = dataclasses.replace(
                    step, path=(*step.path, node), ranks=(*step.ranks, 0), tokens=tokens
                )
            found.append(step)
        return found

    monkeypatch.setattr(engine_module, "verify", generous)
    arm = run(engine, SpecConfig.chain(3), greedy())
    monkeypatch.undo()
    verdict = audit(engine, SpecConfig.chain(3), arm)
    assert verdict.verdict is Verdict.LOSSY
    assert (verdict.largest_gap or 0) > 1e-3
    assert verdict.positions[0] >= 1


def test_a_stale_cache_is_lossy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted slots are not moved to where the sequence goes on: a tree leaves the wrong ones."""
    tree = SpecConfig(num_steps=3, topk=4, num_draft_tokens=8)
    assert audit(engine, tree).verdict is Verdict.EXACT
    monkeypatch.setattr(type(engine.memory.target), "keep", lambda self, lane, start, path: None)
    arm = run(engine, tree, greedy())
    monkeypatch.undo()
    verdict = audit(engine, tree, arm)
    assert verdict.verdict is Verdict.LOSSY


def test_a_reordering_of_sums_is_a_tie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token has a twin of equal score: which of them wins is up to the last bits."""
    pair = shared_pair()
    target = shutil.copytree(pair.target, tmp_path / "twins")
    tensors = load_file(target / "model.safetensors")
    head = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = head[torch.arange(len(head)) // 2 * 2].contiguous()
    save_file(tensors, target / "model.safetensors")
    twins = new_engine(dataclasses.replace(pair, target=target), max_batch_size=4)

    def nudged(
        logits: torch.Tensor, tree: Tree, choosers: Sequence[Chooser], *_: object
    ) -> list[Step]:
        noise = torch.zeros_like(logits)
        noise[..., 1::2] = 1e-9
        return verify(logits + noise, tree, choosers)

    plain = run(twins, SpecConfig.baseline(), greedy())
    monkeypatch.setattr(engine_module, "verify", nudged)
    arm = run(twins, SpecConfig.chain(3), greedy())
    monkeypatch.undo()
    verdict = judge(plain, arm, gap=twins.top2_gap)
    assert verdict.identical < verdict.compared
    assert verdict.verdict is Verdict.TIE_ONLY
    assert (verdict.largest_gap or 0.0) < 1e-9


def test_a_typical_acceptance_sampler_is_lossy(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps any draft that is not too unlikely, instead of keeping it with its probability."""

    def typical(
        logits: torch.Tensor, tree: Tree, choosers: Sequence[Chooser], *_: object
    ) -> list[Step]:
        steps, nodes = verify(logits, tree, choosers), tree.tokens.shape[1]
        if nodes == 1:
            return steps
        found = []
        for lane, step in enumerate(steps):
            rows = logits[lane * nodes : (lane + 1) * nodes]
            probs = filtered_probs(rows, choosers[lane].sampling)
            entropy = -(probs * probs.clamp_min(1e-12).log()).sum(-1)
            node, tokens = 0, []
            while node + 1 < nodes:
                draft = int(tree.tokens[lane, node + 1])
                if float(probs[node, draft]) <= min(0.09, 0.3 * float((-entropy[node]).exp())):
                    break
                tokens.append(draft)
                node += 1
            bonus = int(probs[node].argmax())
            found.append(
                dataclasses.replace(
                    step,
                    path=tuple(range(node + 1)),
                    ranks=(0,) * node,
                    tokens=(*tokens, bonus),
                )
            )
        return found

    plain = run(engine, SpecConfig.baseline(), sampled(1))
    fair = judge(plain, run(engine, SpecConfig.chain(3), sampled(2)))
    assert fair.verdict is Verdict.INCONCLUSIVE
    assert (fair.p or 0) > 0.001
    monkeypatch.setattr(engine_module, "verify", typical)
    arm = run(engine, SpecConfig.chain(3), sampled(2))
    monkeypatch.undo()
    verdict = judge(plain, arm)
    assert verdict.verdict is Verdict.LOSSY
    assert "token frequencies" in verdict.reason
