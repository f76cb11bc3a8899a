"""Whole parts of a step in one call: what they leave is what single operations leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specbench.config import SpecConfig
from specbench.engine.batch import Batch, BatchInputs
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.native.build import native
from specbench.engine.native.models import NativeTarget
from specbench.engine.native.steps import TargetSteps
from specbench.engine.verify import verify
from specbench.errors import EngineError
from tests.drive import drive, new_engine, new_request, prompts
from tests.tiny import write_pair

pytestmark = pytest.mark.skipif(native().library is None, reason=native().told)

CHAIN, TREE = SpecConfig.chain(4), SpecConfig(num_steps=3, topk=3, num_draft_tokens=9)


def running(spec: SpecConfig, lanes: int, engine: Engine | None = None) -> tuple[Engine, Batch]:
    """An engine with ``lanes`` sequences in flight, and its next batch."""
    engine = engine or new_engine(dtype="float32", kernels="native")
    engine.configure(spec, lanes)
    for i, prompt in enumerate(prompts(lanes)):
        engine.submit(new_request(f"r{i}", prompt))
    for _ in range(lanes + 2):
        engine.step()
    return engine, BatchInputs(lanes, engine.pair.device).batch(engine.scheduler.running)


def drafter_of(engine: Engine) -> Eagle3Drafter:
    """The engine's drafter."""
    assert isinstance(engine.drafter, Eagle3Drafter)
    return engine.drafter


@torch.inference_mode()
@pytest.mark.parametrize("spec", [CHAIN, TREE], ids=lambda s: s.point_id)
@pytest.mark.parametrize("lanes", [1, 3])
def test_verify_is_that_of_masks_bit_for_bit(spec: SpecConfig, lanes: int) -> None:
    engine, batch = running(spec, lanes)
    tree = engine.drafter.propose(batch)
    assert tree.chain == (spec.topk == 1)
    ours = engine.runner.verify(batch, tree)
    logits, features = ours.logits.clone(), ours.features.clone()
    assert ours.best == logits.argmax(-1).tolist()
    engine.runner._steps = None
    masked = engine.runner.verify(batch, tree)
    assert masked.best is None
    assert torch.equal(logits, masked.logits)
    assert torch.equal(features, masked.features)


@torch.inference_mode()
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_chain_and_an_extend_are_those_of_single_forwards(lanes: int) -> None:
    left = []
    for alone in (False, True):
        engine, batch = running(CHAIN, lanes)
        drafter = drafter_of(engine)
        if alone:
            drafter._steps = None
        assert (drafter._native is None) == alone
        tree = drafter.propose(batch)
        drafted = tree.tokens.clone()
        scores = engine.runner.verify(batch, tree)
        verdicts = verify(scores.logits, tree, batch.choosers)
        drafter.extend(batch, scores.features, verdicts)
        ends = [start + len(v.path) for start, v in zip(batch.starts, verdicts, strict=True)]
        pool = drafter._pool.keys[0]
        keys = torch.cat([pool[lane, :, :end].flatten() for lane, end in enumerate(ends)])
        left.append((drafted, drafter._first[:lanes], drafter._state[:lanes], keys))
    (drafted, first, state, keys), (drafted_1, first_1, state_1, keys_1) = left
    assert torch.equal(drafted, drafted_1)
    assert torch.equal(first, first_1)
    torch.testing.assert_close(state, state_1, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(keys, keys_1, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_lane_that_breaks_leaves_the_drafts_of_the_others(broken: int) -> None:
    left = []
    for breaks in (False, True):
        engine, batch = running(CHAIN, 3)
        drafter = drafter_of(engine)
        tree = drafter.propose(batch)
        scores = engine.runner.verify(batch, tree)
        logits = scores.logits.clone()
        if breaks:
            logits[broken * tree.tokens.shape[1]] = float("nan")
        verdicts = verify(logits, tree, batch.choosers)
        assert verdicts[broken].finite != breaks
        drafter.extend(batch, scores.features, verdicts)
        ends = [start + len(v.path) for start, v in zip(batch.starts, verdicts, strict=True)]
        others = [lane for lane in range(3) if lane != broken]
        keys = [drafter._pool.keys[0, lane, :, : ends[lane]].clone() for lane in others]
        left.append((drafter._first[others], drafter._state[others], keys))
    (first, state, keys), (first_1, state_1, keys_1) = left
    assert torch.equal(first, first_1)
    assert torch.equal(state, state_1)
    assert all(torch.equal(one, other) for one, other in zip(keys, keys_1, strict=True))


@torch.inference_mode()
def test_another_model_in_the_drafter_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, batch = running(CHAIN, 1)
    drafter = drafter_of(engine)
    assert drafter._native is not None
    copied = object.__new__(type(drafter._model))
    copied.__dict__.update(drafter._model.__dict__)
    asked: list[int] = []

    def guess(*given: Any) -> Any:
        asked.append(1)
        return type(copied).guess(copied, *given)

    monkeypatch.setattr(copied, "guess", guess)
    drafter._model = copied
    drafter.propose(batch)
    assert len(asked) == CHAIN.num_steps - 1


@torch.inference_mode()
def test_ties_go_to_the_lowest_id_and_what_is_not_finite_is_told(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, skilled=False, noise=1.0)
    engine, batch = running(CHAIN, 1, new_engine(pair, dtype="float32", kernels="native"))
    target, tree = engine.pair.target, engine.drafter.propose(batch)
    assert isinstance(target, NativeTarget)
    head = target.model.head.panels
    head[1::2] = head[0::2]  # panels of 16 rows: row i + 16 is row i, for every second 16
    best = engine.runner.verify(batch, tree).best
    assert best is not None
    assert all(token // 16 % 2 == 0 for token in best)
    target.embedding[int(tree.tokens[0, 2])] = float("nan")
    best = engine.runner.verify(batch, tree).best
    assert best is not None
    assert best[2:] == [-1] * (CHAIN.num_draft_tokens - 2)
    assert min(best[:2]) >= 0


def test_a_sequence_of_scores_that_are_not_finite_fails_alone(tmp_path: Path) -> None:
    engine = new_engine(write_pair(tmp_path, skilled=False), dtype="float32", kernels="native")
    engine.configure(CHAIN, 2)
    engine.pair.target.embedding[77] = float("nan")
    sound, broken = drive(engine, [new_request("a", [5, 6, 7]), new_request("b", [5, 77, 7])])
    assert sound.error is None
    assert broken.error is not None


@torch.inference_mode()
def test_features_that_do_not_fit_are_refused() -> None:
    engine, batch = running(CHAIN, 1)
    drafter = drafter_of(engine)
    tree = drafter.propose(batch)
    scores = engine.runner.verify(batch, tree)
    verdicts = verify(scores.logits, tree, batch.choosers)
    with pytest.raises(EngineError, match="a row of target features has width"):
        drafter.extend(batch, scores.features[:, 1:], verdicts)
    steps = engine.runner._steps
    assert isinstance(steps, TargetSteps)
    with pytest.raises(EngineError):
        steps.verify(batch.start_tensor, tree.tokens, None, 64, None)
