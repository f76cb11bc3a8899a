"""Columns are the objects they stand for, and add up to what the objects add up to."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from specbench.columns import (
    COUNTS,
    STEP_FIELDS,
    UNSAID,
    Chunks,
    Steps,
    said,
    steps_by_request,
    whole_numbers,
)
from specbench.errors import EngineError
from specbench.trace import Chunk, StepTrace


def random_step(draw: random.Random, number: int = 0) -> StepTrace:
    depth = draw.randrange(6)
    drafted = depth * draw.choice((1, 1, 3))
    accepted = draw.randint(0, depth)
    return StepTrace(
        batch_step=number,
        batch=draw.randint(1, 4),
        committed=draw.randrange(2**31),
        drafted=drafted,
        depth=depth,
        accepted=accepted,
        emitted=draw.randint(0, accepted + 1),
        ranks=tuple(draw.randrange(3) for _ in range(accepted)),
        draft_ns=draw.randrange(2**53, 2**54),
        verify_ns=draw.randrange(3),
    )


def columns_of(owned: list[tuple[int, StepTrace]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        name: [getattr(s, name) for _, s in owned] for name in STEP_FIELDS
    }
    return {"request": [owner for owner, _ in owned], **found}


def test_steps_come_back_one_by_one() -> None:
    draw = random.Random(1)
    made = tuple(random_step(draw, i) for i in range(40))
    steps = Steps.of(made)
    assert steps == made
    assert steps[-1] == made[-1]
    assert (tuple(steps[3:7]), tuple(steps[38:])) == (made[3:7], made[38:])
    assert steps[30:5] == ()
    assert Steps.of(()) == ()
    assert Steps.of(steps) is steps
    assert hash(steps) == hash(made)
    with pytest.raises(IndexError):
        steps[40]
    for name in COUNTS:
        assert steps.column(name).tolist() == [getattr(step, name) for step in made]
    assert steps.wall_ns.tolist() == [step.wall_ns for step in made]


def test_steps_are_dealt_out_to_their_requests() -> None:
    draw = random.Random(2)
    owned = [(owner, random_step(draw)) for owner in (0, 0, 2, 2, 2, 4)]
    draw_again = [owned[at] for at in (3, 0, 5, 1, 2, 4)]
    for rows in (owned, draw_again):
        found = steps_by_request(columns_of(rows), 6)
        assert found == [tuple(s for owner, s in rows if owner == i) for i in range(6)]
    ends, ranks = Steps.of([s for _, s in owned]).ends, Steps.of([s for _, s in owned]).ranks
    assert steps_by_request({**columns_of(owned), "ranks": (ends, ranks)}, 6)[2][1] == owned[3][1]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"request": [1]}, IndexError),
        ({"request": [-1]}, IndexError),
        ({"request": [0, 0]}, ValueError),
        ({"verify_ns": [1.5]}, TypeError),
        ({"verify_ns": [None]}, TypeError),
        ({"batch": [True]}, TypeError),
        ({"other_ns": [2**64]}, TypeError),
        ({"other_ns": [2**63]}, OverflowError),
        ({"ranks": [[], []]}, ValueError),
        ({"accepted": [9], "depth": [9]}, EngineError),
        ({"accepted": [3], "depth": [2], "drafted": [3]}, EngineError),
        ({"accepted": [-1]}, EngineError),
        ({"emitted": [7]}, EngineError),
        ({"emitted": [-1]}, EngineError),
    ],
)
def test_columns_that_cannot_be_are_refused(change: dict[str, Any], error: type) -> None:
    step = StepTrace(batch_step=0, batch=1, committed=1, drafted=3, depth=3, accepted=1, emitted=2)
    assert steps_by_request(columns_of([(0, step)]), 1) == [(step,)]
    with pytest.raises(error):
        steps_by_request({**columns_of([(0, step)]), **change}, 1)


def test_a_column_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match="ranks"):
        steps_by_request({"request": []}, 1)


CHUNKS = (
    Chunk(at_ns=1, tokens=2, text="a"),
    Chunk(at_ns=2, tokens=0, text=""),
    Chunk(at_ns=3, tokens=None, text=""),
    Chunk(at_ns=4, tokens=0, text="b"),
    Chunk(at_ns=5, tokens=None, text="c"),
    Chunk(at_ns=6, tokens=1, text=""),
)


def test_chunks_come_back_one_by_one() -> None:
    chunks = Chunks.of(CHUNKS)
    assert chunks == CHUNKS
    assert hash(chunks) == hash(CHUNKS)
    assert chunks[1:3] == CHUNKS[1:3]
    assert chunks.text == "abc"
    assert chunks.tokens[2] == UNSAID
    assert Chunks.of(chunks) is chunks


def test_a_delivery_brings_text_or_tokens() -> None:
    chunks = Chunks.of(CHUNKS)
    assert chunks.delivered == tuple(c for c in CHUNKS if c.text or c.tokens)
    assert not chunks.all_said
    assert Chunks.of(CHUNKS[:2]).all_said
    whole = Chunks.of(CHUNKS[:1])
    assert whole.delivered is whole


def test_whole_numbers_are_whole() -> None:
    assert whole_numbers([]).dtype == np.int64
    assert said([None, 3]).tolist() == [UNSAID, 3]
    with pytest.raises(TypeError):
        said([1.5])  # type: ignore[list-item]
