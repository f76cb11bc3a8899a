"""One request from send to its trace: whatever happens, exactly one trace comes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing

from specbench.backends.base import Backend, Event, Finished
from specbench.errors import BackendError, SpecbenchError, UnreachableError
from specbench.request import Request
from specbench.trace import Chunk, Evidence, Finish, RequestTrace, StepTrace, Usage

EventSink = Callable[[Request, Event], None]
TraceSink = Callable[[RequestTrace], None]


async def send(
    backend: Backend,
    request: Request,
    *,
    due_ns: int | None,
    timeout_s: float,
    keep: TraceSink,
    warmup: bool = False,
    on_event: EventSink | None = None,
) -> RequestTrace:
    """Send ``request`` now, collect what comes back and hand the trace to ``keep``.

    A refusal by the server, a server that is gone and a timeout end in a trace with
    ``Finish.ERROR`` and the message. On cancellation the stream is closed, a trace with
    ``Finish.CANCELLED`` is kept, and the cancellation goes on.

    Args:
        backend: opened and configured.
        request: what to send.
        due_ns: when the schedule wanted it sent; None means now.
        timeout_s: from send to the end of the stream.
        keep: receives the trace, exactly once.
        warmup: marks the trace.
        on_event: sees every event.

    Raises:
        SpecbenchError: it concerns the whole run (a broken engine); it is in the trace as well.
    """
    sent_ns = time.perf_counter_ns()
    seen = _Seen(request, sent_ns if due_ns is None else due_ns, sent_ns, warmup)
    try:
        async with asyncio.timeout(timeout_s):
            await _receive(backend, request, seen, on_event)
        trace = seen.complete(backend.evidence)
    except TimeoutError:
        trace = seen.failed(
            f"No complete answer within {timeout_s:g} s. Raise --timeout, or lower the load."
        )
    except (BackendError, UnreachableError) as error:
        trace = seen.failed(str(error))
    except SpecbenchError as error:
        keep(seen.failed(str(error)))
        raise
    except asyncio.CancelledError:
        if _cancelled():
            keep(seen.trace(Finish.CANCELLED, error="Cancelled by the client."))
            raise
        trace = seen.failed("The backend gave the request up.")
    keep(trace)
    return trace


async def _receive(
    backend: Backend, request: Request, seen: _Seen, on_event: EventSink | None
) -> None:
    """Read the stream to its end; whatever breaks it, it is closed."""
    async with aclosing(backend.stream(request)) as stream:
        async for event in stream:
            seen.add(event)
            if on_event is not None:
                on_event(request, event)


def _cancelled() -> bool:
    """True when this task was asked to stop; false when only something it waits for was."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class _Seen:
    """What has come back of one request so far."""

    def __init__(self, request: Request, due_ns: int, sent_ns: int, warmup: bool) -> None:
        self._request = request
        self._due_ns = due_ns
        self._sent_ns = sent_ns
        self._warmup = warmup
        self._chunks: list[Chunk] = []
        self._steps: list[StepTrace] = []
        self._finished: Finished | None = None

    def add(self, event: Event) -> None:
        """File one event."""
        if isinstance(event, Chunk):
            self._chunks.append(event)
        elif isinstance(event, StepTrace):
            self._steps.append(event)
        else:
            self._finished = event

    def complete(self, strongest: Evidence) -> RequestTrace:
        """The trace of a stream that came to its end."""
        if self._finished is None:
            return self.failed("The stream ended without saying why. See the server's log.")
        if self._finished.finish in (Finish.ERROR, Finish.CANCELLED):
            return self.failed(f"The backend ended it with {self._finished.finish!s}.")
        return self.trace(self._finished.finish, strongest=strongest)

    def failed(self, error: str) -> RequestTrace:
        """The trace of a request that broke; what had arrived is kept."""
        return self.trace(Finish.ERROR, error=error)

    def trace(
        self, finish: Finish, *, error: str = "", strongest: Evidence = Evidence.NONE
    ) -> RequestTrace:
        """The facts, with the evidence that they amount to."""
        finished = self._finished
        usage = Usage() if finished is None else finished.usage
        evidence = evidence_of(self._chunks, self._steps, usage)
        if usage.verify_steps == 0:
            evidence = max(evidence, strongest)  # no step ran, so none is missing
        return RequestTrace(
            request=self._request,
            due_ns=self._due_ns,
            sent_ns=self._sent_ns,
            end_ns=time.perf_counter_ns(),
            chunks=tuple(self._chunks),
            steps=tuple(self._steps),
            finish=finish,
            evidence=evidence,
            usage=usage,
            output_ids=None if finished is None else finished.output_ids,
            error=error,
            warmup=self._warmup,
        )


def evidence_of(chunks: list[Chunk], steps: list[StepTrace], usage: Usage) -> Evidence:
    """How well the acceptance of one request was seen, from what its server gave.

    >>> evidence_of([], [], Usage(verify_steps=4, histogram=(1, 3)))
    <Evidence.HISTOGRAM: 3>
    """
    if steps:
        return Evidence.STEPS
    if usage.histogram is not None:
        return Evidence.HISTOGRAM
    if usage.accepted is not None or usage.verify_steps is not None:
        return Evidence.TOTALS
    return Evidence.CHUNKS if chunks else Evidence.NONE
