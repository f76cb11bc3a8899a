"""What of a step's tokens the user gets."""

from __future__ import annotations

import random

import pytest

from specbench.engine.batch import Sequence
from specbench.engine.commit import commit
from specbench.engine.sampling import Chooser
from specbench.engine.text import TextCodec, TextStream
from specbench.trace import Finish
from tests.drive import new_request
from tests.tiny import shared_pair

CODEC = TextCodec(shared_pair().target)
A, B, C = CODEC.tokenizer.encode("abc", add_special_tokens=False).ids
END = 256


def sequence(max_tokens: int = 10, stop: tuple[str, ...] = (), done: int = 0) -> Sequence:
    request = new_request("r", [1], max_tokens, stop=stop)
    return Sequence(
        handle=0,
        request=request,
        prompt=(1,),
        stop_ids=frozenset([END]),
        text=TextStream(CODEC, stop),
        chooser=Chooser(sampling=request.sampling, coins=random.Random(0)),
        output=[A] * done,
    )


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "stop", "emitted", "text", "finish"),
    [
        ([A, B, C], 10, (), 3, "abc", None),
        ([A, B, C], 3, (), 3, "abc", Finish.LENGTH),
        ([A, B, C], 2, (), 2, "ab", Finish.LENGTH),
        ([A, END, C], 10, (), 2, "a", Finish.STOP),
        ([A, END, C], 2, (), 2, "a", Finish.STOP),
        ([A, B, END], 2, (), 2, "ab", Finish.LENGTH),
        ([A, B, C, A], 10, ("bc",), 3, "a", Finish.STOP),
        ([A, B], 10, ("bc",), 2, "a", None),
        ([A, B], 2, ("bc",), 2, "ab", Finish.LENGTH),
        ([A, B, END], 10, ("bc",), 3, "ab", Finish.STOP),
        ([END], 10, (), 1, "", Finish.STOP),
    ],
)
def test_cuts(
    tokens: list[int],
    max_tokens: int,
    stop: tuple[str, ...],
    emitted: int,
    text: str,
    finish: Finish | None,
) -> None:
    running = sequence(max_tokens, stop)
    assert commit(running, tokens) == (emitted, text)
    assert running.output == tokens[:emitted]
    assert running.finish is finish


def test_room_counts_what_was_emitted_before() -> None:
    running = sequence(max_tokens=5, done=4)
    assert commit(running, [B, C]) == (1, "b")
    assert running.finish is Finish.LENGTH


def test_a_stop_string_can_begin_in_an_earlier_step() -> None:
    running = sequence(stop=("ab",))
    assert commit(running, [C, A]) == (2, "c")
    assert commit(running, [B, C]) == (1, "")
    assert running.finish is Finish.STOP
