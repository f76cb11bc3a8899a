"""How late the client itself is: a task that asks to be woken and looks at the clock."""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass
from typing import Self

_TICK_NS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLag:
    """Lateness of the client's event loop while it measured, in nanoseconds.

    A chunk that arrives while the loop is busy is stamped that much too late, so a lag near the
    latencies of the run means that the client, not the server, was measured. Sleeping is rounded
    up to the next millisecond by the system's selector, so values up to 1 ms are no finding.
    All figures are None when the run was shorter than one tick (10 ms).
    """

    ticks: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None


class LagMeter:
    """Async context manager that measures from entry to exit; read ``lag`` afterwards."""

    def __init__(self) -> None:
        self._late_ns = array("q")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _tick(self) -> None:
        while True:
            wanted_ns = time.perf_counter_ns() + _TICK_NS
            await asyncio.sleep(_TICK_NS / 1e9)
            self._late_ns.append(max(0, time.perf_counter_ns() - wanted_ns))

    @property
    def lag(self) -> ClientLag:
        """What was measured so far."""
        return summarise_lag(self._late_ns)


def summarise_lag(late_ns: array[int]) -> ClientLag:
    """Order statistics (nearest rank) of single latenesses.

    >>> summarise_lag(array("q", [5, 1, 3]))
    ClientLag(ticks=3, p50_ns=3, p99_ns=5, max_ns=5)
    >>> summarise_lag(array("q")).p50_ns is None
    True
    """
    if not late_ns:
        return ClientLag(ticks=0, p50_ns=None, p99_ns=None, max_ns=None)
    ordered = sorted(late_ns)
    last = len(ordered) - 1
    return ClientLag(
        ticks=len(ordered),
        p50_ns=ordered[round(0.50 * last)],
        p99_ns=ordered[round(0.99 * last)],
        max_ns=ordered[last],
    )
