"""Drive a backend: N requests in flight (closed loop), or requests on a schedule (open loop)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench.backends.base import Backend
from specbench.config import LoadConfig
from specbench.errors import ConfigError, WorkloadError
from specbench.load.arrival import due_times_ns
from specbench.load.lag import ClientLag, LagMeter
from specbench.load.send import EventSink, TraceSink, send
from specbench.request import Request
from specbench.trace import Finish, RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What one run of the generator saw.

    ``traces`` are in the order of the requests, the turns of a conversation one after another,
    without warm-up; ``warmup`` holds those, marked. The measured window is ``wall_ns`` long from
    ``started_ns``: first send to last delivery. ``max_in_flight`` counts requests sent and not
    yet ended, at its highest within the window.
    """

    traces: tuple[RequestTrace, ...]
    warmup: tuple[RequestTrace, ...]
    started_ns: int
    wall_ns: int
    max_in_flight: int
    client_lag: ClientLag


class LoadCancelled(asyncio.CancelledError):
    """The run was cancelled (Ctrl-C); ``result`` holds what had ended, and what was cut off.

    It is a CancelledError, so cancellation and KeyboardInterrupt work as ever; a caller that
    wants to keep the measurements catches it, saves ``result`` and raises it again.
    """

    def __init__(self, result: LoadResult) -> None:
        super().__init__("the load was cancelled")
        self.result = result


async def run_load(
    backend: Backend,
    requests: Sequence[Request],
    load: LoadConfig,
    *,
    due_ns: Sequence[int] = (),
    on_trace: TraceSink | None = None,
    on_event: EventSink | None = None,
) -> LoadResult:
    """Send every request and wait until all have ended.

    Closed loop: ``concurrency`` slots take the requests in order; a slot that gets free sends
    its next request at once. Open loop: each request is sent at its due time whatever the server
    does, so a slow server meets the load it was promised (no coordinated omission); ``due_ns``
    and ``sent_ns`` of a trace show how far the client kept to it. In both, the follow-up turns of
    a conversation are sent when the reply before them is complete, in the same slot; a turn that
    fails ends its conversation.

    Warm-up runs first, as a closed loop over copies of the first requests (first turns only).

    Args:
        backend: opened and configured.
        requests: first turns; ids should be unique.
        load: how to send.
        due_ns: in an open loop, when each request is due after the start, in ascending order;
            empty for the times that ``load`` draws.
        on_trace: sees each trace when its request ends, warm-up included.
        on_event: sees each event of the measured requests as it arrives.

    Raises:
        WorkloadError: there is no request.
        ConfigError: a request has follow-up turns but no messages to continue; ``due_ns`` are not
            as many as the requests, or in a closed loop.
        LoadCancelled: this task was cancelled; it carries the partial result.
        SpecbenchError: an error that concerns the whole run; ``on_trace`` has seen what ended.
    """
    _check(requests)
    due_ns = _checked(due_ns, requests, load) or due_times_ns(load, len(requests))
    run = _Run(backend, load, on_trace, on_event)
    meter = LagMeter()
    try:
        await run.warm_up(requests)
        async with meter:
            await run.measure(requests, due_ns)
    except asyncio.CancelledError as stopped:
        raise LoadCancelled(run.result(meter.lag)) from stopped
    except BaseExceptionGroup as group:
        raise _first(group) from None
    return run.result(meter.lag)


def _check(requests: Sequence[Request]) -> None:
    if not requests:
        raise WorkloadError(
            "There are no requests to send.", todo="Choose a workload with prompts."
        )
    for request in requests:
        if request.follow_ups and not request.messages:
            raise ConfigError(
                f"Request {request.request_id} has follow-up turns but is not a conversation.",
                expected="Follow-up turns need `messages`.",
            )


def _checked(due_ns: Sequence[int], requests: Sequence[Request], load: LoadConfig) -> Sequence[int]:
    if due_ns and (len(due_ns) != len(requests) or not load.open_loop):
        raise ConfigError(
            f"{len(due_ns)} due times for {len(requests)} requests.",
            expected="One each, in an open loop.",
        )
    return due_ns


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that stopped the run: the first one that is not itself a group."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


class _Run:
    """The state of one ``run_load``: what is in flight and what has been kept."""

    def __init__(
        self,
        backend: Backend,
        load: LoadConfig,
        on_trace: TraceSink | None,
        on_event: EventSink | None,
    ) -> None:
        self._backend = backend
        self._load = load
        self._on_trace = on_trace
        self._on_event = on_event
        self._in_flight = 0
        self._max_in_flight = 0
        self._warmup: dict[int, RequestTrace] = {}
        self._kept: dict[tuple[int, int], RequestTrace] = {}

    async def warm_up(self, requests: Sequence[Request]) -> None:
        """Send copies of the first requests, with as many in flight as in a closed loop."""
        copies = [
            replace(
                requests[index % len(requests)],
                request_id=f"warmup-{index}:{requests[index % len(requests)].request_id}",
                follow_ups=(),
            )
            for index in range(self._load.warmup_requests)
        ]
        await self._in_slots(copies, self._warm_one)
        self._max_in_flight = 0

    async def measure(self, requests: Sequence[Request], due_ns: Sequence[int]) -> None:
        """The measured window; ``due_ns`` is empty in a closed loop."""
        if self._load.open_loop:
            await self._on_schedule(requests, due_ns)
        else:
            await self._in_slots(requests, self._converse)

    async def _in_slots(
        self,
        requests: Sequence[Request],
        one: Callable[[int, Request], Coroutine[Any, Any, None]],
    ) -> None:
        """Closed loop. Slots start in order and share one queue, so the order is fixed."""
        queue = iter(enumerate(requests))

        async def slot() -> None:
            for index, request in queue:
                await one(index, request)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._load.concurrency, len(requests))):
                group.create_task(slot())

    async def _on_schedule(self, requests: Sequence[Request], due_times: Sequence[int]) -> None:
        """Open loop: one task per request, started when it is due."""
        start_ns = time.perf_counter_ns()
        async with asyncio.TaskGroup() as group:
            for index, (request, offset_ns) in enumerate(zip(requests, due_times, strict=True)):
                due_ns = start_ns + offset_ns
                await _sleep_until(due_ns)
                group.create_task(self._converse(index, request, due_ns))

    async def _converse(self, index: int, request: Request, due_ns: int | None = None) -> None:
        """One request and its follow-up turns; a turn is due when the one before has ended."""
        turn: Request | None = request
        while turn is not None:
            trace = await self._send(turn, (index, turn.turn), due_ns)
            failed = trace.finish is Finish.ERROR
            turn = None if failed else turn.next_turn(trace.text)
            due_ns = trace.end_ns

    async def _warm_one(self, index: int, request: Request) -> None:
        self._warmup[index] = await send(
            self._backend,
            request,
            due_ns=None,
            timeout_s=self._load.timeout_s,
            keep=self._show,
            warmup=True,
        )

    async def _send(
        self, request: Request, place: tuple[int, int], due_ns: int | None
    ) -> RequestTrace:
        """Send one turn and file its trace under ``place``: (index of the request, turn)."""

        def keep(trace: RequestTrace) -> None:
            self._kept[place] = trace
            self._show(trace)

        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        try:
            return await send(
                self._backend,
                request,
                due_ns=due_ns,
                timeout_s=self._load.timeout_s,
                keep=keep,
                on_event=self._on_event,
            )
        finally:
            self._in_flight -= 1

    def _show(self, trace: RequestTrace) -> None:
        if self._on_trace is not None:
            self._on_trace(trace)

    def result(self, lag: ClientLag) -> LoadResult:
        """What has ended so far."""
        traces = tuple(self._kept[place] for place in sorted(self._kept))
        started_ns = min((t.sent_ns for t in traces), default=time.perf_counter_ns())
        delivered = [t.chunks[-1].at_ns for t in traces if t.chunks]
        ended_ns = max(delivered or [t.end_ns for t in traces], default=started_ns)
        return LoadResult(
            traces=traces,
            warmup=tuple(self._warmup[index] for index in sorted(self._warmup)),
            started_ns=started_ns,
            wall_ns=ended_ns - started_ns,
            max_in_flight=self._max_in_flight,
            client_lag=lag,
        )


async def _sleep_until(due_ns: int) -> None:
    """Return at ``due_ns`` or as soon after it as the loop allows; always lets others run."""
    while True:
        await asyncio.sleep(max(0, due_ns - time.perf_counter_ns()) / 1e9)
        if time.perf_counter_ns() >= due_ns:
            return
