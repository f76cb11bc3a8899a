"""Is HEAD better or worse than BASE? Two runs held against each other, arm by arm.

The ratios and their intervals are those of ``run_ratio``. Tokens/s of two runs hold no baseline
that ran beside them and are never judged.

Several arms are judged at once, so intervals are widened to keep the chance that *any* arm of two
equal runs is called worse at 2.5 % (Bonferroni), and the same for better.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench.estimate import Estimate
from specbench.fingerprint import Difference, Scope
from specbench.metrics.arms import ArmKey, Cell
from specbench.metrics.curves import Curve, by_key
from specbench.metrics.figures import ALL
from specbench.metrics.run_ratio import (
    Spread,
    accept_length_ratio,
    block_spread,
    speedup_ratio,
    widened,
)
from specbench.metrics.stats import LEAST_REQUESTS, Interval

ROUNDING = 1e-9  # of a ratio of equal sums


class Change(enum.StrEnum):
    """What two runs show of one figure. UNCLEAR: no difference shown, nor its absence.

    A ratio without an interval shows nothing of either: it is NOT_COMPARABLE.
    """

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNCLEAR = "no difference shown"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of one arm (or of a category) in both runs. ``ratio`` is head over base.

    ``judged`` figures decide the gate; those of categories are shown only.
    """

    key: ArmKey
    category: str
    figure: str
    base: Estimate | None
    head: Estimate | None
    ratio: Interval | None
    change: Change
    judged: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that the reports of a comparison print.

    ``only_base`` and ``only_head`` are arms that one run lacks; ``lost`` are those of BASE alone
    that BASE had measured. ``lossless`` are arms whose verdict fell, with both verdicts.
    """

    margin: float
    differences: tuple[Difference, ...]
    rows: tuple[Compared, ...]
    lossless: tuple[tuple[ArmKey, str, str], ...]
    only_base: tuple[ArmKey, ...]
    only_head: tuple[ArmKey, ...]
    lost: tuple[ArmKey, ...]

    @property
    def apart(self) -> bool:
        """True when a difference of machines or settings keeps times from being compared."""
        return any(one.scope >= Scope.SPEED for one in self.differences)

    @property
    def judged(self) -> tuple[Compared, ...]:
        """The rows that decide."""
        return tuple(row for row in self.rows if row.judged)

    @property
    def change(self) -> Change:
        """The verdict over all: worse beats better beats no difference shown beats same."""
        changes = {row.change for row in self.judged}
        if Change.WORSE in changes or self.lossless:
            return Change.WORSE
        order = (Change.BETTER, Change.UNCLEAR, Change.SAME)
        return next((one for one in order if one in changes), Change.NOT_COMPARABLE)


def compare(
    base: Sequence[Curve],
    head: Sequence[Curve],
    differences: Sequence[Difference],
    *,
    margin: float,
) -> Comparison:
    """Hold ``head`` against ``base``.

    Args:
        base: curves of the run to be held against.
        head: curves of the new run.
        differences: topics in which the runs differ; those that were accepted are left out.
        margin: share by which a figure may fall or rise before it counts, for example 0.03.
    """
    old, new = by_key(base), by_key(head)
    shared = [key for key in old if key in new]
    blocked = max((one.scope for one in differences), default=Scope.CHANGE)
    pairs = [(old[key], new[key], figure) for key in shared for figure in _FIGURES]
    planned = [(a, b, figure) for a, b, figure in pairs if _measured(a, b, figure)]
    judged = sum(a.category == ALL for a, _, _ in planned)
    spreads = _spreads(old, new)
    rows = tuple(
        _row(
            a,
            b,
            figure,
            _refusal(a, b, figure, blocked),
            spread=spreads.get(a.key.cell),
            margin=margin,
            judged=judged if a.category == ALL else 1,
        )
        for a, b, figure in planned
    )
    totals = [key for key in shared if key[1] == ALL]
    fell = (
        (key, old[key, ALL].lossless, new[key, ALL].lossless)
        for key, _ in totals
        if _fell(old[key, ALL].lossless, new[key, ALL].lossless)
    )
    only_base = tuple(key for key, category in old if category == ALL and (key, ALL) not in new)
    return Comparison(
        margin=margin,
        differences=tuple(differences),
        rows=rows,
        lossless=() if blocked is Scope.ALL else tuple(fell),
        only_base=only_base,
        only_head=tuple(key for key, category in new if category == ALL and (key, ALL) not in old),
        lost=tuple(key for key in only_base if _has_figures(old[key, ALL], blocked)),
    )


def change_of(ratio: Interval, margin: float) -> Change:
    """What a ratio with its interval shows against a margin.

    >>> change_of(Interval(value=0.9, low=0.85, high=0.95, n=30), 0.03).value
    'worse'
    >>> change_of(Interval(value=1.0, low=0.8, high=1.2, n=30), 0.03).value
    'no difference shown'
    >>> change_of(Interval(value=0.5, low=None, high=None, n=5), 0.03).value
    'not comparable'
    """
    if ratio.low is None or ratio.high is None:
        return Change.NOT_COMPARABLE
    margin = max(margin, ROUNDING)
    if ratio.high < 1 and ratio.value < 1 - margin:
        return Change.WORSE
    if ratio.low > 1 and ratio.value > 1 + margin:
        return Change.BETTER
    if ratio.low >= 1 - margin and ratio.high <= 1 + margin:
        return Change.SAME
    return Change.UNCLEAR


_FIGURES = ("accept length", "speedup")


def _of(curve: Curve, figure: str) -> Estimate | None:
    return curve.speedup if figure == "speedup" else curve.accept_length


def _measured(base: Curve, head: Curve, figure: str) -> bool:
    return _of(base, figure) is not None or _of(head, figure) is not None


def _has_figures(curve: Curve, blocked: Scope) -> bool:
    """True for an arm with a figure to judge; plain decoding and its repetition have none.

    A speedup that a difference of machines keeps apart is none here.
    """
    figures = _FIGURES if blocked < Scope.SPEED else ("accept length",)
    return not curve.invalid and any(_of(curve, figure) is not None for figure in figures)


def _spreads(
    old: Mapping[tuple[ArmKey, str], Curve], new: Mapping[tuple[ArmKey, str], Curve]
) -> dict[Cell, Spread]:
    """How much blocks of the two runs scatter, for every cell where it can be told."""
    pairs: dict[Cell, list[tuple[Curve, Curve]]] = {}
    for (key, category), curve in old.items():
        if category == ALL and (key, ALL) in new:
            pairs.setdefault(key.cell, []).append((curve, new[key, ALL]))
    found = {cell: block_spread(curves) for cell, curves in pairs.items()}
    return {cell: spread for cell, spread in found.items() if spread is not None}


def _row(
    base: Curve,
    head: Curve,
    figure: str,
    reason: str,
    *,
    spread: Spread | None,
    margin: float,
    judged: int,
) -> Compared:
    ratio = None
    if not reason:
        found = (
            speedup_ratio(base, head, spread)
            if figure == "speedup"
            else accept_length_ratio(base, head)
        )
        ratio = None if found is None else widened(found, judged)
        reason = "" if ratio is not None else "no prompt is in both runs"
    if ratio is not None and ratio.low is None:
        reason = f"under {LEAST_REQUESTS} prompts in both runs: no interval"
        if figure == "speedup" and spread is None and ratio.n >= LEAST_REQUESTS:
            reason = "one block in both runs: its scatter is not known (--blocks 2 or more)"
    return Compared(
        key=base.key,
        category=base.category,
        figure=figure,
        base=_of(base, figure),
        head=_of(head, figure),
        ratio=ratio,
        change=Change.NOT_COMPARABLE if ratio is None else change_of(ratio, margin),
        judged=base.category == ALL,
        reason=reason,
    )


def _refusal(base: Curve, head: Curve, figure: str, blocked: Scope) -> str:
    """Why a figure cannot be compared; empty when it can."""
    if blocked is Scope.ALL:
        return "the runs are of different things"
    if blocked is Scope.SPEED and figure == "speedup":
        return "the runs differ in what times depend on"
    for name, curve in (("BASE", base), ("HEAD", head)):
        if curve.invalid:
            return f"{name} is invalid: {', '.join(curve.invalid)}"
        if _of(curve, figure) is None:
            return f"not measured in {name}"
    return ""


def _fell(base: str, head: str) -> bool:
    """True when outputs that were the target's own are no longer."""
    return base in ("exact", "tie_only") and head == "lossy"
