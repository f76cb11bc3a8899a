"""The tap's sums, and the figures that a view gets from them."""

from __future__ import annotations

import pytest

from specbench.backends.base import Event, Finished
from specbench.config import SpecConfig
from specbench.request import Request, SamplingParams
from specbench.server.live import LiveTap, Second, figures
from specbench.server.shown import Flight
from specbench.trace import Chunk, Finish, StepTrace
from tests.fakes import fake_steps

CHAIN = SpecConfig.chain(3)


def new_tap(spec: SpecConfig = CHAIN) -> LiveTap:
    return LiveTap(spec, 4)


def steps_of(tokens: int, spec: SpecConfig = CHAIN) -> tuple[StepTrace, ...]:
    request = Request(request_id="r", prompt="p", sampling=SamplingParams(max_tokens=tokens))
    return fake_steps(request, spec)


def feed(tap: LiveTap, *events: Event) -> Flight:
    flight = tap.begin("r")
    for event in events:
        tap.see(flight, event)
    return flight


def test_the_figures_are_those_of_the_steps() -> None:
    tap = new_tap()
    feed(tap, Chunk(at_ns=0, tokens=1, text="a"), *steps_of(11))

    seen = tap.figures()
    assert seen.verify_steps == 4  # accepted 3, 0, 2, 1
    assert seen.accept_length == pytest.approx(1 + 6 / 4)
    assert seen.survival == pytest.approx((0.75, 0.5, 0.25))
    assert seen.drafted == (1.0, 1.0, 1.0)
    assert seen.forwards == 4
    assert seen.parts_ms == pytest.approx(
        {"draft": 0.001, "extend": 0.0005, "verify": 0.002, "other": 0.0001}
    )


def test_the_steps_of_one_forward_count_its_time_once() -> None:
    tap = new_tap()
    step = steps_of(5)[0]
    feed(tap, step)
    feed(tap, step)
    assert tap.figures().verify_steps == 2
    assert tap.figures().forwards == 1


def test_what_was_not_seen_is_none_and_not_zero() -> None:
    seen = figures([])
    assert (seen.accept_length, seen.parts_ms, seen.survival) == (None, None, ())
    untimed = Second(at=0, point_id="k3", verify_steps=1)
    assert figures([untimed]).parts_ms is None


def test_the_baseline_drafts_nothing() -> None:
    tap = new_tap(SpecConfig.baseline())
    feed(tap, *steps_of(4, SpecConfig.baseline()))
    assert tap.figures().accept_length == 1.0
    assert tap.figures().survival == ()


def test_a_request_is_queued_until_its_first_delivery() -> None:
    tap = new_tap()
    flight = tap.begin("r")
    assert (tap.queued, tap.running) == (1, 0)
    tap.see(flight, Chunk(at_ns=0, tokens=None, text=""))  # brings nothing
    assert (tap.queued, tap.running) == (1, 0)
    tap.see(flight, Chunk(at_ns=0, tokens=1, text="a"))
    assert (tap.queued, tap.running) == (0, 1)
    assert flight.first_ns is not None
    tap.end(flight, "length")
    assert (tap.queued, tap.running, tap.ended) == (0, 0, {"length": 1})


def test_a_request_that_ends_in_the_queue_leaves_it() -> None:
    tap = new_tap()
    tap.end(tap.begin("r"), "cancelled")
    assert (tap.queued, tap.running, tap.ended) == (0, 0, {"cancelled": 1})


def test_another_point_starts_its_figures_afresh_and_keeps_the_past() -> None:
    tap = new_tap()
    feed(tap, *steps_of(11))
    tap.switch(SpecConfig.chain(1), 2)
    assert tap.figures().verify_steps == 0
    feed(tap, *steps_of(5, SpecConfig.chain(1)))
    assert tap.figures().drafted == (1.0,)
    state, _ = tap.state()
    assert [row["point"] for row in state["seconds"]] == ["k3", "k1"]
    assert state["point"]["batch_size"] == 2


def test_a_reader_gets_what_it_has_not_seen() -> None:
    tap = new_tap()
    flight = feed(tap, Chunk(at_ns=0, tokens=1, text="a"))
    whole, seen = tap.state()
    assert whole["outputs"][0]["state"] == "running"
    assert [piece["text"] for piece in whole["outputs"][0]["pieces"]] == ["a"]

    step = steps_of(5)[0]
    tap.see(flight, step)
    tap.see(flight, Chunk(at_ns=0, tokens=4, text="bcde"))
    part, seen = tap.state(seen)
    row = part["outputs"][0]
    assert row["from"] == 1
    assert [piece["text"] for piece in row["pieces"]] == ["bcde"]
    assert row["pieces"][0]["steps"] == [{"accepted": 3, "emitted": 4, "depth": 3, "drafted": 3}]
    assert (row["tokens"], row["verify_steps"], row["accepted"]) == (5, 1, 3)

    tap.see(flight, Finished(finish=Finish.STOP))
    tap.end(flight, "stop")
    last, _ = tap.state(seen)
    assert last["outputs"][0]["pieces"] == []
    assert last["outputs"][0]["state"] == "stop"
    assert last["ended"] == {"stop": 1}


def test_the_past_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr("specbench.server.live.time.perf_counter_ns", lambda: now_ns)
    tap = new_tap()
    flight = tap.begin("r")
    for second in range(700):
        now_ns = second * 1_000_000_000
        tap.see(flight, Chunk(at_ns=0, tokens=2, text="a"))
    assert len(tap.state()[0]["seconds"]) == 600
    assert tap.tokens_per_s() == 2.0
    now_ns += 20_000_000_000
    assert tap.tokens_per_s() == 0.0
    now_ns += 1_000_000_000_000
    assert tap.state()[0]["seconds"] == []
    assert tap.tokens == 1400
