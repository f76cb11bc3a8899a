"""Lanes stay dense whoever leaves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.engine.batch import Sequence
from specbench.engine.sampling import Chooser
from specbench.engine.scheduler import Scheduler
from specbench.engine.text import TextCodec, TextStream
from specbench.errors import EngineError
from tests.drive import new_request
from tests.tiny import shared_pair

CODEC = TextCodec(shared_pair().target)


def sequence(handle: int) -> Sequence:
    request = new_request(str(handle), [1, 2])
    return Sequence(
        handle=handle,
        request=request,
        prompt=(1, 2),
        stop_ids=frozenset(),
        text=TextStream(CODEC, ()),
        chooser=Chooser(sampling=request.sampling, coins=random.Random(0)),
        output=[3],
        committed=2,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "admit", "join", "leave"]), st.integers(0, 9))))
def test_lanes_are_dense_and_moves_name_the_last(steps: list[tuple[str, int]]) -> None:
    scheduler, count = Scheduler(3), 0
    for action, pick in steps:
        everyone = [*scheduler.holders, *scheduler.waiting]
        if action == "add":
            scheduler.add(sequence(count))
            count += 1
        elif action == "admit":
            admitted = scheduler.admit()
            if admitted is not None:
                assert admitted.lane == len(scheduler.running)
                admitted.committed = 1
        elif action == "join":
            if scheduler.filling is not None:
                scheduler.filling.committed = 2
                scheduler.join()
        elif everyone:
            leaving = everyone[pick % len(everyone)]
            lane, last = leaving.lane, len(scheduler.running) - 1
            filling = scheduler.filling
            moved = scheduler.leave(leaving)
            expected = [(last, lane, 2)] if 0 <= lane < last else []
            if filling is not None and 0 <= lane <= last:
                expected.append((last + 1, last, 1))
            assert moved == expected
            assert scheduler.find(leaving.handle) is None
        scheduler.audit(capacity=8)
        assert scheduler.idle == (not scheduler.holders and not scheduler.waiting)


def test_first_come_first_served() -> None:
    scheduler = Scheduler(2)
    for handle in range(3):
        scheduler.add(sequence(handle))
    for handle in range(2):
        entering = scheduler.admit()
        assert entering is not None
        assert entering.handle == handle
        assert scheduler.admit() is None  # one prompt is read at a time
        scheduler.join()
    assert scheduler.admit() is None
    scheduler.leave(scheduler.running[0])
    admitted = scheduler.admit()
    assert admitted is not None
    assert (admitted.handle, admitted.lane) == (2, 1)


def test_the_audit_sees_what_does_not_fit() -> None:
    scheduler = Scheduler(1)
    scheduler.add(sequence(0))
    running = scheduler.admit()
    assert running is not None
    with pytest.raises(EngineError, match="does not decode"):
        scheduler.audit(capacity=8)
    scheduler.join()
    with pytest.raises(EngineError, match="before join"):
        scheduler.join()
    running.committed = 1
    with pytest.raises(EngineError, match="All but the last"):
        scheduler.audit(capacity=8)
    running.committed, running.lane = 2, 1
    with pytest.raises(EngineError, match="believes in 1"):
        scheduler.audit(capacity=8)
    running.lane = 0
    with pytest.raises(EngineError, match="slots of 1"):
        scheduler.audit(capacity=1)
