"""Wall time of a step's cycle, cut into draft, extend, verify and other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Nanoseconds of one cycle; the four add up to its wall time."""

    draft_ns: int
    extend_ns: int
    verify_ns: int
    other_ns: int


class CycleClock:
    """Counts from the end of one cycle to the end of the next, prefills and idling left out.

    ``wait`` blocks until the device has done what it was given: without it, the work of a part
    would be counted in the part that first waits.
    """

    def __init__(self, wait: Callable[[], None] | None = None) -> None:
        self._wait = wait
        self._last = self._mark = time.perf_counter_ns()
        self._excluded = 0
        self._draft = self._extend = self._verify = 0

    def start(self) -> None:
        """A part begins now; what came before counts as other."""
        self._mark = time.perf_counter_ns()

    def draft(self) -> None:
        """Drafting ends now, and the next part begins."""
        self._draft += self._lap()

    def verify(self) -> None:
        """Verification ends now."""
        self._verify += self._lap()

    def extend(self) -> None:
        """The draft's extend ends now."""
        self._extend += self._lap()

    def end(self) -> Parts:
        """Close the cycle; ``other`` is what no part took, the caller's own work included."""
        now = time.perf_counter_ns()
        taken = self._draft + self._extend + self._verify
        parts = Parts(
            draft_ns=self._draft,
            extend_ns=self._extend,
            verify_ns=self._verify,
            other_ns=max(now - self._last - self._excluded - taken, 0),
        )
        self._last, self._excluded = now, 0
        self._draft = self._extend = self._verify = 0
        return parts

    def exclude(self, begun_ns: int, *, resume: bool) -> None:
        """Leave out a prefill that ran from ``begun_ns`` to now.

        ``resume`` says that other sequences were between two cycles; otherwise the engine was
        idle before, and the next cycle is counted from now.
        """
        now = time.perf_counter_ns()
        if resume:
            self._excluded += now - begun_ns
        else:
            self._last, self._excluded = now, 0

    def now(self) -> int:
        """The time that deliveries of this step carry."""
        return time.perf_counter_ns()

    def _lap(self) -> int:
        if self._wait is not None:
            self._wait()
        now = time.perf_counter_ns()
        spent, self._mark = now - self._mark, now
        return spent
