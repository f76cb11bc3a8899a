from __future__ import annotations

import threading
from typing import Any

import pytest

from specbench.dashboards.annotate import Annotation, RunAnnotations, annotating
from specbench.errors import ConfigError, SpecbenchError, UnreachableError
from specbench.trace import ArmRun
from tests.unit.dashboards.stand_in import StandIn

ARM = ArmRun(
    point_id="k3",
    workload="code",
    batch_size=4,
    temperature=0.7,
    block=2,
    started_ns=0,
    wall_ns=2_500_000_000,
    requests=(),
)


class Seen:
    """What the observer behind the annotations is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def started(self, jobs: int, done: int) -> None:
        self.calls.append((jobs, done))

    def saved(self, job: Any, arm: ArmRun) -> None:
        self.calls.append((job, arm))


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "secret")


def test_start_blocks_and_end_are_posted(stand_in: StandIn) -> None:
    seen, said = Seen(), list[str]()
    with annotating(stand_in.url, seen, run_id="r1", say=said.append) as observer:
        observer.started(10, 3)
        observer.saved("job", ARM)
    start, block, end = stand_in.posted("/api/annotations")
    assert start["text"] == "Run r1 started: 10 blocks, 3 of them there already"
    assert start["tags"] == ["specbench", "run:r1"]
    assert start["timeEnd"] is None
    assert block["text"] == "k3, batch 4, temperature 0.7, code, block 2"
    assert block["tags"] == ["specbench", "run:r1", "point:k3"]
    assert block["timeEnd"] - block["time"] == 2500
    assert end["text"] == "Run r1 ended"
    assert start["time"] <= block["timeEnd"] <= end["time"]
    assert seen.calls == [(10, 3), ("job", ARM)]
    assert said == []
    assert set(stand_in.tokens) == {"Bearer secret"}


def test_a_run_that_breaks_off_says_so(stand_in: StandIn) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        annotating(stand_in.url, Seen(), run_id="r1", say=print),
    ):
        raise KeyboardInterrupt
    assert stand_in.posted("/api/annotations")[-1]["text"] == "Run r1 stopped (KeyboardInterrupt)"


def test_a_failure_is_said_once_and_the_run_goes_on(stand_in: StandIn) -> None:
    stand_in.answers = {("POST", "/api/annotations"): (401, {"message": "Invalid token"})}
    seen, said = Seen(), list[str]()
    with annotating(stand_in.url, seen, run_id="r1", say=said.append) as observer:
        observer.started(10, 0)
        for _ in range(20):
            observer.saved("job", ARM)
    (line,) = said
    assert "the run goes on" in line
    assert "401" in line
    assert "GRAFANA_TOKEN" in line
    assert len(seen.calls) == 21
    assert len(stand_in.sent) == 1


def test_an_unreachable_grafana_is_said_once() -> None:
    said: list[str] = []

    def post(annotation: Annotation) -> None:
        raise UnreachableError("Nothing answers.")

    with RunAnnotations(post, Seen(), run_id="r", say=said.append) as observer:
        observer.started(1, 0)
        observer.saved("job", ARM)
    assert said == ["Annotations are no longer posted, the run goes on: Nothing answers."]


def test_the_sweep_does_not_wait_for_a_slow_grafana(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench.dashboards.annotate.LAST_WAIT_S", 0.05)
    monkeypatch.setattr("specbench.dashboards.annotate.MOST_WAITING", 3)
    said: list[str] = []
    go_on = threading.Event()

    def post(annotation: Annotation) -> None:
        go_on.wait(30)

    try:
        with RunAnnotations(post, Seen(), run_id="r", say=said.append) as observer:
            for _ in range(50):
                observer.saved("job", ARM)
    finally:
        go_on.set()
    assert said == ["Annotations are no longer posted, the run goes on: 3 of them wait"]


def test_a_queue_that_is_just_full_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("specbench.dashboards.annotate.LAST_WAIT_S", 0.05)
    monkeypatch.setattr("specbench.dashboards.annotate.MOST_WAITING", 1)
    said: list[str] = []
    busy, go_on = threading.Event(), threading.Event()

    def post(annotation: Annotation) -> None:
        busy.set()
        go_on.wait(30)

    with RunAnnotations(post, Seen(), run_id="r", say=said.append) as observer:
        observer.saved("job", ARM)
        assert busy.wait(30)  # one is being posted, the place behind it is free
    go_on.set()
    assert said == ["Annotations are no longer posted, the run goes on: 1 of them wait"]


def test_a_slow_end_is_waited_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench.dashboards.annotate.LAST_WAIT_S", 0.05)
    said: list[str] = []
    go_on = threading.Event()
    with RunAnnotations(lambda _: (go_on.wait(30), None)[1], Seen(), run_id="r", say=said.append):
        pass
    go_on.set()
    assert said == ["Annotations are no longer posted, the run goes on: Grafana is too slow"]


def test_without_an_address_nothing_is_wrapped() -> None:
    seen = Seen()
    with annotating(None, seen, run_id="r", say=print) as observer:
        assert observer is seen


def test_wrong_use_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN")
    with (
        pytest.raises(ConfigError, match="GRAFANA_TOKEN"),
        annotating("http://127.0.0.1:3000", Seen(), run_id="r", say=print),
    ):
        pass
    assert issubclass(ConfigError, SpecbenchError)
