"""The walk over a scored text gives the engine's own verify steps, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from specbench.config import SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import Scores, walk
from specbench.engine.probe_text import greedy_texts
from specbench.errors import WorkloadError
from tests.drive import drive, new_engine, new_request, prompts
from tests.tiny import shared_pair

MOST = 7


@pytest.fixture(scope="module")
def engine() -> Engine:
    return new_engine()


@pytest.fixture(scope="module")
def captured(engine: Engine) -> Capture:
    requests = [new_request(f"r{i}", p, max_tokens=12 + 9 * i) for i, p in enumerate(prompts(4))]
    return capture(engine.pair, greedy_texts(engine.pair, requests, past=MOST + 1))


@pytest.fixture(scope="module")
def scores(engine: Engine, captured: Capture) -> Scores:
    draft = ProbeDraft.load(engine.pair, shared_pair().draft)
    return draft.score(captured, draft.claimed, MOST)


@pytest.mark.parametrize("steps", range(1, MOST + 1))
def test_every_step_is_the_engines(
    engine: Engine, captured: Capture, scores: Scores, steps: int
) -> None:
    engine.configure(SpecConfig.chain(steps), 1)
    requests = [
        new_request(s.request_id, s.tokens[: s.prompt_len], max_tokens=s.output_len)
        for s in captured.samples
    ]
    outcomes = drive(engine, requests)
    walked = walk(captured, scores, steps)
    for outcome, mine in zip(outcomes, walked, strict=True):
        theirs = [(t.committed, t.accepted, t.emitted) for t in outcome.steps]
        assert [(s.committed, s.accepted, s.emitted) for s in mine] == theirs
    assert any(step.accepted == steps for text in walked for step in text)


def test_a_chain_survives_as_far_as_all_its_steps_are_right(scores: Scores) -> None:
    for row in range(len(scores.rank)):
        for step in range(MOST):
            assert scores.alive[row, step] == bool((scores.rank[row, : step + 1] == 0).all())
    assert np.all(scores.tree_alive(1) == scores.alive)
    assert np.all(scores.tree_alive(4) >= scores.alive)
    assert scores.tree_alive(4).sum() > scores.alive.sum()


def test_more_steps_than_scored_is_an_error(captured: Capture, scores: Scores) -> None:
    with pytest.raises(WorkloadError, match="8 asked"):
        walk(captured, scores, MOST + 1)
