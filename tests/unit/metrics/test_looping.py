"""Labelled outputs: the threshold of looping.py was chosen on these."""

import dataclasses
import re

import pytest

from specbench.metrics.example import trace_of
from specbench.metrics.looping import (
    REPEATED_4GRAMS,
    is_looping,
    looping_distinct_share,
    looping_share,
    output_before_end,
    repeated_share,
)
from specbench.metrics.sums import sums_of
from specbench.trace import Chunk

HEALTHY = {
    "refrain": "The river runs down to the sea and the sea gives the rain to the hill. "
    "Row home, row home, the lamp is lit. The river runs under the mill and the mill grinds the "
    "corn for the day. Row home, row home, the lamp is lit. The wind takes the smoke of the town "
    "and the town goes to sleep in the hay. Row home, row home, the lamp is lit.",
    "json records": '{"name": "Anna", "age": 31, "city": "Turin"}, {"name": "Boris", "age": 45, '
    '"city": "Varna"}, {"name": "Chloe", "age": 27, "city": "Lyon"}, {"name": "David", "age": 52, '
    '"city": "Leeds"}, {"name": "Elena", "age": 38, "city": "Porto"}, {"name": "Farid", "age": '
    '24, "city": "Tunis"}',
    "table": "| Monday | 12 | 7 | open | | Tuesday | 14 | 6 | open | | Wednesday | 9 | 8 | closed "
    "| | Thursday | 11 | 7 | open | | Friday | 17 | 5 | open | | Saturday | 22 | 4 | open |",
    "counting": " ".join(str(i) for i in range(1, 60)),
    "times table": " ".join(f"7 x {i} = {7 * i}." for i in range(1, 16)),
    "assignments": " ".join(
        f"self.{name} = {name};"
        for name in ("width", "height", "depth", "colour", "weight", "label", "owner", "price")
    ),
    "asserts": " ".join(f"assert add({i}, {i + 3}) == {2 * i + 3};" for i in range(8)),
    "dialogue": '"Where is it?" said Tom. "On the shelf," said Ann. "Which shelf?" said Tom. "The '
    'top one," said Ann. "I can\'t reach it," said Tom. "Take the chair," said Ann. "The chair is '
    'broken," said Tom. "Then take the stool," said Ann.',
}
LOOPS = {
    "a sentence": "The old man walked to the door and looked at the sea. " * 7,
    "late": "She packed the bread, two apples and a map, and before the bells had rung she was on "
    "the road to the north with the dog at her heels. " + "He was not there. " * 11,
    "one word": "and so it went on until the very end of the day when they all said " + "no " * 40,
    "after a start": "In the morning the train left the station at nine and crossed the bridge. "
    + "It was a very long way to the city. " * 7,
    "json": '{"name": "Anna", "age": 31}, ' * 12,
    "arithmetic": "So 3 + 4 = 7. " * 12,
    "two lines": "I know what you mean. You know what I mean. " * 8,
}


def tokens(text: str, piece: int) -> list[str]:
    """Words and signs, cut into pieces like a sub-word tokenizer's."""
    words = re.findall(r"\w+|[^\w\s]", text)
    return [word[i : i + piece] for word in words for i in range(0, len(word), piece)]


@pytest.mark.parametrize("piece", [3, 99])
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_outputs_are_left_alone(name: str, piece: int) -> None:
    share = repeated_share(tokens(HEALTHY[name], piece))
    assert share is not None
    assert share < REPEATED_4GRAMS - 0.05


@pytest.mark.parametrize("piece", [3, 99])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_caught(name: str, piece: int) -> None:
    share = repeated_share(tokens(LOOPS[name], piece))
    assert share is not None
    assert share >= REPEATED_4GRAMS + 0.04


def test_distinct_tokens_do_not_separate_them() -> None:
    digits, loop = tokens(HEALTHY["json records"], 1), tokens(LOOPS["late"], 3)
    assert len(set(digits)) / len(digits) < len(set(loop)) / len(loop)


def test_text_after_eos_is_not_judged() -> None:
    trace = dataclasses.replace(
        trace_of([0], depth=0), output_ids=(*range(100, 140), 2, *([7] * 200))
    )
    assert output_before_end(trace, end_ids=(2,)) == list(range(100, 140))
    assert is_looping(trace, end_ids=(2,)) is False
    assert is_looping(trace) is True


def test_short_outputs_cannot_be_judged() -> None:
    trace = dataclasses.replace(trace_of([0], depth=0), output_ids=(5,) * 23)
    assert is_looping(trace) is None
    assert looping_share([sums_of(trace)]) is None
    assert looping_distinct_share([sums_of(trace)]) is None


def test_words_stand_in_for_ids() -> None:
    trace = dataclasses.replace(
        trace_of([0], depth=0), chunks=(Chunk(at_ns=1, tokens=None, text=LOOPS["a sentence"]),)
    )
    assert is_looping(trace) is True


def test_share_counts_outputs() -> None:
    loop = dataclasses.replace(trace_of([0], depth=0), output_ids=(5,) * 40)
    fine = dataclasses.replace(trace_of([0], depth=0), output_ids=tuple(range(40)))
    share = looping_share([sums_of(loop), sums_of(fine), sums_of(fine), sums_of(fine)])
    assert share is not None
    assert (share.value, share.n) == (0.25, 4)
    assert looping_distinct_share([sums_of(loop), sums_of(fine)]) == 1 / 40
