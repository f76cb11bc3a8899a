"""What the engine's specification lists to be tested (13.3) and no other file here tests whole.

T1 with K = 8, T4, T18 and the end token of T19. The rest: T1 to T3 in test_engine, T5 in
golden/test_timeline, T6 in golden/test_tree, T7 and T8 in test_exactness, T13 in test_prefill, T14
and T15 in test_mixtures, T22 in test_graphs (emulated) and gpu/test_cuda_graphs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from specbench.config import SpecConfig
from specbench.engine.batch import Batch
from specbench.engine.drafter import chain_tree
from specbench.engine.engine import Engine
from specbench.engine.probe_capture import capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.tree import Tree
from specbench.trace import Finish
from tests.drive import drive, new_engine, new_request, prompts
from tests.tiny import shared_pair, write_pair
from tests.unit.engine.test_engine import Scripted


@pytest.fixture(scope="module")
def engine() -> Engine:
    return new_engine()


def test_a_chain_of_eight(engine: Engine) -> None:
    """T1 at its longest chain: greedy tokens are those of plain decoding."""
    requests = [new_request(f"r{i}", p, max_tokens=30) for i, p in enumerate(prompts(3))]
    engine.configure(SpecConfig.baseline(), 1)
    plain = [outcome.ids for outcome in drive(engine, requests)]
    engine.configure(SpecConfig.chain(8), 3)
    outcomes = drive(engine, requests)
    assert [outcome.ids for outcome in outcomes] == plain
    assert max(step.accepted for outcome in outcomes for step in outcome.steps) > 4


class Unreliable(Scripted):
    """Knows the output, and says something else at each position with probability 1 - p."""

    def __init__(self, outputs: Mapping[str, Sequence[int]], steps: int, p: float) -> None:
        super().__init__(outputs, steps, right=True)
        self._coins, self._p = random.Random(7), p

    def propose(self, batch: Batch) -> Tree:
        tree = super().propose(batch)
        tokens = tree.tokens.clone()
        for row in tokens:
            for node in range(1, len(row)):
                if self._coins.random() >= self._p:
                    row[node] = (row[node] + 1) % 250
        return chain_tree(tokens, self._shape)


@pytest.fixture(scope="module")
def known(engine: Engine) -> dict[str, tuple[int, ...]]:
    """Plain outputs, longer than a drafter is asked to know."""
    asked = [new_request(f"r{i}", prompt, 220) for i, prompt in enumerate(prompts(4))]
    engine.configure(SpecConfig.baseline(), 4)
    return {f"r{i}": outcome.ids for i, outcome in enumerate(drive(engine, asked, audit=False))}


# engine-spec 0.2: L = 1 + p + ... + p^K
@pytest.mark.parametrize(("p", "steps", "length"), [(0.6, 3, 2.176), (0.8, 5, 3.689)])
def test_a_draft_that_is_right_with_probability_p(
    engine: Engine, known: dict[str, tuple[int, ...]], p: float, steps: int, length: float
) -> None:
    """T4: the accept length of the table, within 4 standard errors."""
    engine.configure(SpecConfig.chain(steps), 4)
    engine.drafter = Unreliable(known, steps, p)
    asked = [new_request(f"r{i}", prompt, 210) for i, prompt in enumerate(prompts(4))]
    outcomes = drive(engine, asked, audit=False)
    accepted = np.array([step.accepted for outcome in outcomes for step in outcome.steps])
    error = accepted.std() / len(accepted) ** 0.5
    assert error < 0.15
    assert abs(1 + accepted.mean() - length) < 4 * error


def test_offline_accuracy_is_the_engines_first_conditional(engine: Engine) -> None:
    """T18, sharper than asked: at every position the probe's hit is the engine's acceptance.

    The engine is made to stand at each position of a text: the prompt ends there, so its first
    verify step asks the draft about just that token.
    """
    requests = [new_request(f"r{i}", p, max_tokens=30) for i, p in enumerate(prompts(3))]
    samples = greedy_texts(engine.pair, requests, past=1)
    captured = capture(engine.pair, samples)
    draft = ProbeDraft.load(engine.pair, shared_pair().draft)
    scores = draft.score(captured, draft.claimed, 1)
    engine.configure(SpecConfig.chain(1), 4)
    stands = [
        new_request(f"{sample.request_id}/{end}", sample.tokens[:end], max_tokens=3)
        for sample in samples
        for end in range(sample.prompt_len, sample.prompt_len + sample.output_len - 1)
    ]
    accepted = [outcome.steps[0].accepted for outcome in drive(engine, stands, audit=False)]
    assert accepted == scores.hit[:, 0].astype(int).tolist()
    assert 0.2 < np.mean(accepted) < 1


def test_an_end_token_inside_accepted_drafts(engine: Engine, tmp_path: Path) -> None:
    """T19: nothing after it, the others of the batch go on, and all slots come back."""
    asked = [new_request(f"r{i}", p, max_tokens=40) for i, p in enumerate(prompts(3))]
    engine.configure(SpecConfig.baseline(), 1)
    plain = [outcome.ids for outcome in drive(engine, asked)]
    at, end = next(
        (at, token)
        for at, token in enumerate(plain[0])
        if at % 5 not in (0, 4) and at > 5 and plain[0].index(token) == at
    )
    ending = new_engine(write_pair(tmp_path, eos=end))
    ending.configure(SpecConfig.chain(4), 3)
    ending.drafter = Scripted({f"r{i}": ids for i, ids in enumerate(plain)}, 4, right=True)
    outcomes = drive(ending, asked)  # audits lanes and slots after every step
    assert outcomes[0].ids == plain[0][: at + 1]
    assert outcomes[0].finish is Finish.STOP
    assert outcomes[0].steps[-1].emitted <= outcomes[0].steps[-1].accepted  # it was a draft
    for outcome, ids in zip(outcomes[1:], plain[1:], strict=True):
        stop = ids.index(end) + 1 if end in ids else len(ids)
        assert outcome.ids == ids[:stop]
