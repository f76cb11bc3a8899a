"""Verify steps from running totals: real ones, and such as hide a step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from specbench.backends.llamacpp import DraftSteps
from specbench.errors import BackendError
from tests.payloads import timings_in


def totals(tokens: int, drafted: int = 0, accepted: int = 0) -> dict[str, int]:
    if not drafted:
        return {"predicted_n": tokens}
    return {"predicted_n": tokens, "draft_n": drafted, "draft_n_accepted": accepted}


def read(events: list[dict[str, Any]]) -> tuple[list[int | None], tuple[int, ...] | None]:
    """Tokens of each event, and the histogram."""
    steps = DraftSteps()
    new = [steps.feed(event) for event in events]
    last = events[-1]
    return new, steps.histogram(last.get("draft_n"), last.get("draft_n_accepted"))


def test_a_real_stream() -> None:
    """Steps of 1, 2, 0, 1 and 3 accepted: 13 tokens = 1 + 5 + 7."""
    events = timings_in("llamacpp_chat.sse")
    new, histogram = read(events)
    assert new == [1] * 13 + [0]
    assert histogram == (1, 2, 1, 1)
    drafted = [event.get("draft_n", 0) for event in events]
    assert [b - a for a, b in pairwise(drafted) if b > a] == [3] * 5


def test_steps_without_drafts_accepted_none() -> None:
    """With one token of room left llama.cpp drafts nothing."""
    _, histogram = read([totals(1), totals(2, 3, 0), totals(3, 3, 0), totals(4, 6, 1)])
    assert histogram == (2, 1)
    assert read([totals(1), totals(2)])[1] == (1,)
    assert read([totals(1)])[1] == (0,)


def test_held_back_tokens_of_one_step_are_still_that_step() -> None:
    """The step of two accepted sends its first two tokens together: no character before."""
    events = [totals(1), totals(2, 3, 0), totals(4, 6, 2), totals(5, 6, 2)]
    new, histogram = read(events)
    assert new == [1, 1, 2, 1]
    assert histogram == (1, 0, 1)


@pytest.mark.parametrize(
    "events",
    [
        [totals(1), totals(2, 3, 0), totals(5, 9, 3)],  # 6 drafts at once, where steps draft 3
        [totals(1), totals(3, 6, 1)],  # no other step says how many one drafts
        [totals(1), totals(4, 3, 1)],  # more tokens than one step gives
        [totals(1), totals(2, 3, 1), totals(3, 6, 1)],  # the step before owes a token
        [totals(1), totals(2, 3, 4)],
        [totals(1), totals(2, 3, 2), totals(4, 2, 2)],  # totals that fall
    ],
)
def test_a_hidden_step_gives_no_histogram(events: list[dict[str, Any]]) -> None:
    assert read(events)[1] is None


def test_steps_that_do_not_add_up_to_the_totals_give_none() -> None:
    steps = DraftSteps()
    for event in (totals(1), totals(2, 3, 0)):
        steps.feed(event)
    assert steps.histogram(3, 0) == (1,)
    assert steps.histogram(6, 0) is None


def test_what_is_no_count_is_refused() -> None:
    assert DraftSteps().feed({}) is None
    with pytest.raises(BackendError, match="draft_n is -1"):
        DraftSteps().feed({"predicted_n": 1, "draft_n": -1})
