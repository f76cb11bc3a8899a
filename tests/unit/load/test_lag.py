from __future__ import annotations

import asyncio
import time
from array import array

from specbench.load.lag import LagMeter, summarise_lag


def test_a_blocked_loop_is_seen() -> None:
    async def blocked() -> LagMeter:
        async with LagMeter() as meter:
            await asyncio.sleep(0)
            time.sleep(0.08)  # noqa: ASYNC251  # the fault that the meter exists to see
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        return meter

    lag = asyncio.run(blocked()).lag
    assert lag.ticks >= 1
    assert lag.max_ns is not None
    assert lag.max_ns >= 60_000_000


def test_too_short_a_run_gives_no_figure() -> None:
    lag = summarise_lag(array("q"))
    assert (lag.ticks, lag.p50_ns, lag.p99_ns, lag.max_ns) == (0, None, None, None)


def test_ranks() -> None:
    lag = summarise_lag(array("q", range(101)))
    assert (lag.p50_ns, lag.p99_ns, lag.max_ns) == (50, 99, 100)


def test_the_ticking_task_ends_with_the_meter() -> None:
    async def body() -> int:
        async with LagMeter():
            pass
        return len(asyncio.all_tasks())

    assert asyncio.run(body()) == 1
