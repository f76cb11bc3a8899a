"""Count what a server answers: pass events on, and make the trace that a load generator makes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from specbench.backends.base import Event, Finished
from specbench.collectors.arm import ArmRecord
from specbench.errors import SpecbenchError
from specbench.request import Request
from specbench.trace import Chunk, Evidence, Finish, RequestTrace, StepTrace, Usage


async def counted(
    events: AsyncGenerator[Event, None], request: Request, arm: ArmRecord
) -> AsyncGenerator[Event, None]:
    """``events`` of an engine in this process, counted under ``arm`` as they pass.

    A request whose client goes away ends as cancelled, one that the engine fails as error.
    """
    sent_ns = time.perf_counter_ns()
    chunks: list[Chunk] = []
    steps: list[StepTrace] = []
    last = Finished(finish=Finish.CANCELLED, usage=Usage())
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, StepTrace):
                    steps.append(event)
                elif isinstance(event, Chunk):
                    chunks.append(event)
                else:
                    last = event
                arm.event(request, event)
                yield event
    except SpecbenchError:
        last = Finished(finish=Finish.ERROR, usage=Usage())
        raise
    finally:
        arm.trace(
            RequestTrace(
                request=request,
                due_ns=sent_ns,
                sent_ns=sent_ns,
                end_ns=time.perf_counter_ns(),
                chunks=tuple(chunks),
                steps=tuple(steps),
                finish=last.finish,
                evidence=Evidence.STEPS,
                usage=last.usage,
                output_ids=last.output_ids,
            )
        )
