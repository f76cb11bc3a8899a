"""The one backend behind all routes: who may use it when, and which point it runs."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress

from aiohttp import web

from specbench.backends.base import Backend, BackendFacts, Event
from specbench.collectors.live import Recorder
from specbench.collectors.points import Cell
from specbench.collectors.served import counted
from specbench.config import SpecConfig
from specbench.errors import EngineError
from specbench.request import Request
from specbench.server.fields import RefusedError
from specbench.server.live import LiveTap
from specbench.server.logs import JsonLog
from specbench.server.shown import Flight


class Service:
    """State of the server; used from one event loop only.

    Args:
        backend: opened and configured to ``spec`` and ``batch_size`` by the caller, who also
            closes it.
        facts: what ``backend.open`` returned.
        model: the name that requests must give, if they give one.
        spec: the point that the backend runs.
        batch_size: how many requests it runs together.
        max_in_flight: requests taken at once; more are refused with 429.
        live: sees every event, for the live page; None makes one.
        log: gets one line per request; None logs nothing.
        recorder: counts what is served under the point that runs; None counts nothing.
    """

    def __init__(
        self,
        backend: Backend,
        facts: BackendFacts,
        *,
        model: str,
        spec: SpecConfig,
        batch_size: int,
        max_in_flight: int,
        live: LiveTap | None = None,
        log: JsonLog | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._backend = backend
        self.facts = facts
        self.model = model
        self.spec = spec
        self.batch_size = batch_size
        self.in_flight = 0
        self.draining = self.broken = False
        self._max_in_flight = max_in_flight
        self._switching = False
        self._recorder = recorder
        self._count(spec, batch_size)
        self.live = live or LiveTap(spec, batch_size)
        self.log = log
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def ready(self) -> bool:
        """True while requests are taken."""
        return not self.draining and not self._switching and not self.broken

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold a place while a request is served.

        Raises:
            RefusedError: 503 while shutting down or switching, 429 when all places are taken.
        """
        if self.draining:
            raise RefusedError("The server is shutting down.", status=503, code="draining")
        if self._switching:
            raise RefusedError("The server is switching to another point.", status=503, code="busy")
        if self.in_flight >= self._max_in_flight:
            raise RefusedError(
                f"{self.in_flight} requests are in flight, which is all that this server takes.",
                todo="Try again later.",
                status=429,
                code="too_many_requests",
            )
        self.in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()

    async def drain(self, limit_s: float) -> int:
        """Take no new request and wait for those in flight; returns how many are left."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        return self.in_flight

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The backend's events of ``request``, seen by the live view and logged at its end."""
        flight = self.live.begin(request.request_id)
        outcome = "error"  # unless the backend says why it ended
        try:
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    self.live.see(flight, event)
                    yield event
        except (GeneratorExit, asyncio.CancelledError):
            outcome = "cancelled"
            raise
        except EngineError as error:
            self._engine_stopped(error)
            raise
        finally:
            self.live.end(flight, flight.outcome or outcome)
            if self.log is not None:
                self.log.info("request", **_log_facts(flight))

    def _engine_stopped(self, error: EngineError) -> None:
        """No request can be run any more: health checks say so, and the log says why, once."""
        if not self.broken and self.log is not None:
            told = "".join(traceback.format_exception(error))
            self.log.error("engine_stopped", text=str(error), traceback=told)
        self.broken = True

    def _events(self, request: Request) -> AsyncGenerator[Event, None]:
        events = self._backend.stream(request)
        return events if self._arm is None else counted(events, request, self._arm)

    def _count(self, spec: SpecConfig, batch_size: int) -> None:
        """Count under this point from now on."""
        cell = Cell(spec=spec, batch_size=batch_size)
        self._arm = None if self._recorder is None else self._recorder.begin(cell)

    async def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """Switch the backend to another point while nothing is in flight.

        Raises:
            RefusedError: 409 while requests are in flight or another switch is under way.
            ConfigError: the backend cannot run the point, or it is one more than Prometheus is
                to see of one process.
        """
        if self.in_flight or self._switching:
            raise RefusedError(
                f"{self.in_flight} requests are in flight; a point is switched between requests.",
                todo="Wait until they have ended.",
                status=409,
                code="busy",
            )
        if self._recorder is not None:
            self._recorder.register([Cell(spec=spec, batch_size=batch_size)])
        self._switching = True
        try:
            await self._backend.configure(spec, batch_size)
        finally:
            self._switching = False
        self.spec = spec
        self.batch_size = batch_size
        self._count(spec, batch_size)
        self.live.switch(spec, batch_size)
        if self.log is not None:
            self.log.info("configured", point=spec.point_id, batch_size=batch_size)


def _log_facts(flight: Flight) -> dict[str, object]:
    """What the log says of a request: counts and times, never its text."""
    first, start = flight.first_ns, flight.started_ns
    return {
        "id": flight.request_id,
        "outcome": flight.outcome,
        "tokens": flight.tokens,
        "verify_steps": flight.verify_steps,
        "accepted": flight.accepted,
        "ttft_ms": None if first is None else round((first - start) / 1e6, 3),
        "duration_ms": round((time.perf_counter_ns() - start) / 1e6, 3),
    }


SERVICE = web.AppKey("service", Service)
