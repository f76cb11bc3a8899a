"""The four parts add up to the wall time from cycle end to cycle end."""

from __future__ import annotations

import itertools

import pytest

from specbench.engine.clock import CycleClock


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves by 10 at each look."""
    times = itertools.count(0, 10)
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(times))


@pytest.mark.usefixtures("ticks")
def test_parts_of_a_cycle() -> None:
    clock = CycleClock()  # 0
    clock.start()  # 10
    clock.draft()  # 20
    clock.verify()  # 30
    clock.start()  # 40: the time since verify is other
    clock.extend()  # 50
    parts = clock.end()  # 60
    assert (parts.draft_ns, parts.verify_ns, parts.extend_ns) == (10, 10, 10)
    assert parts.other_ns == 30
    following = clock.end()  # 70
    assert following.other_ns == 10
    assert following.verify_ns == 0


@pytest.mark.usefixtures("ticks")
def test_a_prefill_between_two_cycles_belongs_to_neither() -> None:
    clock = CycleClock()  # 0
    clock.exclude(0, resume=True)  # 10: ran from 0 to 10
    assert clock.end().other_ns == 10  # 20


@pytest.mark.usefixtures("ticks")
def test_idle_time_is_not_counted() -> None:
    clock = CycleClock()  # 0
    clock.now(), clock.now(), clock.now()  # idle until 30
    clock.exclude(30, resume=False)  # 40
    assert clock.end().other_ns == 10  # 50


def test_a_device_is_waited_for() -> None:
    waits: list[int] = []
    clock = CycleClock(lambda: waits.append(1))
    clock.start()
    clock.draft()
    clock.verify()
    assert len(waits) == 2
