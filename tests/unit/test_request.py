"""Requests and how a conversation goes on."""

from __future__ import annotations

import pytest

from specbench.errors import ConfigError
from specbench.request import Message, Request, SamplingParams


def _talk(*follow_ups: str) -> Request:
    return Request(
        request_id="r1",
        messages=(Message(role="user", content="one"),),
        follow_ups=follow_ups,
        category="dialogue",
    )


def test_the_next_turn_holds_the_whole_talk_and_keeps_what_identifies_it() -> None:
    second = _talk("two", "three").next_turn("reply one")

    assert second is not None
    assert [(m.role, m.content) for m in second.messages] == [
        ("user", "one"),
        ("assistant", "reply one"),
        ("user", "two"),
    ]
    assert (second.turn, second.follow_ups, second.category) == (1, ("three",), "dialogue")
    assert second.request_id == "r1#1"
    third = second.next_turn("reply two")
    assert third is not None
    assert third.request_id == "r1#2"
    assert third.next_turn("x") is None


def test_a_request_gives_exactly_one_kind_of_prompt() -> None:
    with pytest.raises(ConfigError, match="0 of messages, prompt, prompt_ids"):
        Request(request_id="r")
    with pytest.raises(ConfigError, match="2 of"):
        Request(request_id="r", prompt="x", prompt_ids=(1,))
    assert Request(request_id="r", prompt="").prompt == ""


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 1.5},
        {"min_p": -1.0},
        {"top_k": -1},
        {"max_tokens": 0},
    ],
)
def test_sampling_outside_its_range_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SamplingParams(**bad)  # type: ignore[arg-type]  # the point of the test


def test_greedy_is_temperature_zero() -> None:
    assert SamplingParams().greedy
    assert not SamplingParams(temperature=0.7).greedy
