"""Which point to set, and whether that can be said: one answer per cell."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench.estimate import Estimate, Severity
from specbench.metrics.arms import Arm, ArmKey, Cell
from specbench.metrics.figures import ArmResult
from specbench.metrics.speedup import decode_speedup


class Outcome(enum.StrEnum):
    """What a cell shows of its best point against plain decoding."""

    FASTER = "faster"
    NO_DIFFERENCE = "no_difference"
    SLOWER = "slower"
    UNSURE = "unsure"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The fastest valid point of a cell.

    ``tied`` are points that a paired comparison does not tell from it. ``excluded`` are points
    whose speedup is known but that an invalid caveat bars, with its code. UNSURE means too few
    requests for an interval; NONE that no point can be named (``arm`` is None). ``plain`` is what
    the speedups are over, None where nothing was; ``answered`` says whether a speculative point
    completed a request at all.
    """

    cell: Cell
    outcome: Outcome
    arm: ArmResult | None
    tied: tuple[ArmResult, ...]
    excluded: tuple[tuple[ArmResult, str], ...]
    plain: ArmResult | None = None
    answered: bool = True


def best_of(cell: Cell, results: Sequence[ArmResult], arms: Mapping[ArmKey, Arm]) -> Best:
    """The point with the highest speedup among those without an invalid caveat.

    The best of many noisy points looks better than it is; ``tied`` says how many share its place.
    """
    rivals = [r for r in results if not r.spec.is_baseline and r.total.speedup is not None]
    excluded = tuple((r, code) for r in rivals if (code := invalid_code(r)) is not None)
    valid = [r for r in rivals if invalid_code(r) is None]
    plain = plain_of(results)
    if not valid:
        return Best(
            cell=cell,
            outcome=Outcome.NONE,
            arm=None,
            tied=(),
            excluded=excluded,
            plain=plain,
            answered=any(r.total.requests for r in results if not r.spec.is_baseline),
        )
    first = max(valid, key=_speedup)
    tied = tuple(r for r in valid if r is not first and _not_told_apart(first, r, arms))
    return Best(
        cell=cell,
        outcome=outcome_of(first.total.speedup),
        arm=first,
        tied=tied,
        excluded=excluded,
        plain=plain,
    )


def plain_of(results: Sequence[ArmResult]) -> ArmResult | None:
    """Plain decoding among the arms of a cell; None where it was not plain."""
    plain = (arm for arm in results if arm.spec.is_baseline)
    return next((arm for arm in plain if not arm.has("baseline_speculates")), None)


def outcome_of(speedup: Estimate | None) -> Outcome:
    """Faster or slower only when the interval says so.

    >>> outcome_of(None)
    <Outcome.NONE: 'none'>
    """
    if speedup is None:
        return Outcome.NONE
    if speedup.low is None or speedup.high is None:
        return Outcome.UNSURE
    if not speedup.excludes(1.0):
        return Outcome.NO_DIFFERENCE
    return Outcome.FASTER if speedup.value > 1 else Outcome.SLOWER


def invalid_code(result: ArmResult) -> str | None:
    """The first caveat that bars a point from being named best."""
    return next((c.code for c in result.caveats if c.severity is Severity.INVALID), None)


def fastest_for(category: str, results: Sequence[ArmResult]) -> tuple[ArmResult, Estimate] | None:
    """The valid point with the highest speedup in one category, and that speedup."""
    found = [
        (result, seen.speedup)
        for result in results
        for seen in result.categories
        if seen.category == category
        and seen.speedup is not None
        and invalid_code(result) is None
        and not result.spec.is_baseline
    ]
    return max(found, key=lambda pair: pair[1].value, default=None)


def _speedup(result: ArmResult) -> float:
    return result.total.speedup.value if result.total.speedup else 0.0


def _not_told_apart(first: ArmResult, other: ArmResult, arms: Mapping[ArmKey, Arm]) -> bool:
    """True when the paired decode times of the two points do not exclude that they are equal."""
    ratio = decode_speedup(arms[other.key].requests, arms[first.key].requests)
    return ratio is not None and ratio.low is not None and not ratio.excludes(1.0)
