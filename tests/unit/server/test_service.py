from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable

import pytest

from specbench.backends.base import BackendFacts
from specbench.collectors import text
from specbench.collectors.live import Recorder
from specbench.config import SpecConfig
from specbench.errors import ConfigError, EngineError
from specbench.request import Request, SamplingParams
from specbench.server.fields import RefusedError
from specbench.server.logs import JsonLog
from specbench.server.service import Service
from tests.fakes import FakeBackend


def service(backend: FakeBackend | None = None, max_in_flight: int = 2) -> Service:
    return Service(
        backend or FakeBackend(),
        BackendFacts(backend="fake", target="t", draft="d"),
        model="t",
        spec=SpecConfig.chain(3),
        batch_size=4,
        max_in_flight=max_in_flight,
    )


def refused(action: Callable[[], None]) -> int:
    with pytest.raises(RefusedError) as refusal:
        action()
    return refusal.value.status


def test_places_are_limited_and_given_back() -> None:
    used = service()

    def enter() -> None:
        with used.admitted():
            pass

    with used.admitted(), used.admitted():
        assert used.in_flight == 2
        assert refused(enter) == 429
    enter()
    assert used.in_flight == 0


def test_no_request_while_shutting_down() -> None:
    used = service()
    used.draining = True

    def enter() -> None:
        with used.admitted():
            pass

    assert refused(enter) == 503
    assert not used.ready


def test_a_drain_waits_for_what_is_in_flight_up_to_its_limit() -> None:
    async def use() -> None:
        used = service()
        with used.admitted():
            assert await used.drain(0.0) == 1
            waiting = asyncio.create_task(used.drain(60.0))
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await waiting == 0
        assert not used.ready

    asyncio.run(use())


def test_a_point_is_switched_between_requests_only() -> None:
    backend = FakeBackend()
    used = service(backend)

    def switch() -> None:
        asyncio.run(used.configure(SpecConfig.chain(2), 3))

    with used.admitted():
        assert refused(switch) == 409
    assert backend.points == []
    switch()
    assert (used.spec, used.batch_size) == (SpecConfig.chain(2), 3)


def test_a_refused_point_leaves_the_old_one() -> None:
    used = service()
    with pytest.raises(ConfigError):
        asyncio.run(used.configure(SpecConfig.chain(2), 100))
    assert (used.spec, used.batch_size, used.ready) == (SpecConfig.chain(3), 4, True)


def test_requests_wait_out_a_switch() -> None:
    class Slow(FakeBackend):
        async def configure(self, spec: SpecConfig, batch_size: int) -> None:
            def enter() -> None:
                with used.admitted():
                    pass

            assert refused(enter) == 503
            assert not used.ready
            await super().configure(spec, batch_size)

    used = service(Slow())
    asyncio.run(used.configure(SpecConfig.chain(2), 3))
    assert used.ready


def test_what_is_served_is_counted_under_the_point_that_runs() -> None:
    labels = ("run_id", "version", "backend", "target", "draft")
    recorder = Recorder(dict.fromkeys(labels, "x"))
    used = Service(
        FakeBackend(),
        BackendFacts(backend="fake", target="t", draft="d"),
        model="t",
        spec=SpecConfig.chain(3),
        batch_size=4,
        max_in_flight=2,
        recorder=recorder,
    )

    async def run() -> None:
        for spec in (SpecConfig.chain(2), SpecConfig.chain(3)):
            await used.configure(spec, 4)
            request = Request(request_id="r", prompt="p", sampling=SamplingParams(max_tokens=5))
            assert [event async for event in used.stream(request)]

    asyncio.run(run())
    page = text.page(recorder.families(), openmetrics=False).decode()
    for point in ("k2.bs4", "k3.bs4"):
        line = f'specbench_requests_total{{arm="spec",point="{point}",outcome="length"}} 1'
        assert line in page.splitlines()


def test_a_point_that_prometheus_has_no_label_for_is_refused_before_the_switch() -> None:
    labels = ("run_id", "version", "backend", "target", "draft")
    recorder = Recorder(dict.fromkeys(labels, "x"))
    backend = FakeBackend()
    used = Service(
        backend,
        BackendFacts(backend="fake", target="t", draft="d"),
        model="t",
        spec=SpecConfig.chain(3),
        batch_size=4,
        max_in_flight=2,
        recorder=recorder,
    )
    with pytest.raises(ConfigError, match="33 positions"):
        asyncio.run(used.configure(SpecConfig.chain(33), 4))
    assert backend.points == []
    assert used.ready
    assert used.spec == SpecConfig.chain(3)


def test_an_engine_that_has_stopped_is_told_by_the_health_checks_and_once_by_the_log() -> None:
    lines = io.StringIO()
    used = service(FakeBackend(fails={"r": EngineError("the engine stopped: boom.")}))
    used.log = JsonLog(lines)

    async def ask() -> None:
        async for _ in used.stream(Request(request_id="r", prompt="p")):
            pass

    assert used.ready
    for _ in range(2):
        with pytest.raises(EngineError, match="boom"):
            asyncio.run(ask())
        assert (used.ready, used.broken) == (False, True)
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    stopped = [line for line in told if line["event"] == "engine_stopped"]
    assert len(stopped) == 1
    assert "boom" in stopped[0]["traceback"]
