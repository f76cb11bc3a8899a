"""A number, how sure it is, and what it rests on."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace


class Evidence(enum.IntEnum):
    """How an acceptance figure was seen; a larger value is stronger.

    STEPS: every verify step; HISTOGRAM: accepted counts per request; TOTALS: sums only;
    CHUNKS: guessed from deliveries; NONE: not seen.
    """

    NONE = 0
    CHUNKS = 1
    TOTALS = 2
    HISTOGRAM = 3
    STEPS = 4


class Severity(enum.StrEnum):
    """How much a caveat takes away from the figure it hangs on."""

    NOTE = "note"
    WARNING = "warning"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """A reservation as data: a stable ``code`` for ``validity``, and a ``text`` for people."""

    code: str
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval. Functions return ``Estimate | None``: missing is never 0.

    ``low`` and ``high`` are None when no interval can be given (fewer than 12 requests,
    semantics.md 19). ``n`` counts what was resampled, or the samples of a plain statistic.
    ``log_error`` is the standard error of the value's logarithm, where an interval rests on it.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    unit: str
    evidence: Evidence
    caveats: tuple[Caveat, ...] = ()
    log_error: float | None = None

    def with_caveats(self, caveats: Iterable[Caveat]) -> Estimate:
        """The same estimate with ``caveats`` added."""
        return replace(self, caveats=(*self.caveats, *caveats))

    def excludes(self, value: float) -> bool:
        """True when the interval is known and ``value`` lies outside it."""
        if self.low is None or self.high is None:
            return False
        return not self.low <= value <= self.high
