"""The ratio of one figure between two runs, with its interval.

**Accept length** is paired by prompt: a greedy run of the same pair gives the same counts, so the
smallest change shows.

**Speedup** is paired by prompt too: each run's is relative to its own interleaved baseline, which
takes slow hours of a machine out, and the prompts are the same. What is left are slow minutes that
hit one arm in one block. They are seen in how the ratio scatters between blocks, pooled over the
arms of a cell, and their share is added to the interval (in squares, on the logarithm). Runs with
one common block cannot show that scatter, and their ratio has no interval. Runs that share no timed
prompt are two independent samples, and their own intervals are taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from specbench.estimate import Estimate
from specbench.metrics.curves import Curve, Timing
from specbench.metrics.stats import CONFIDENCE, FloatArray, Interval, log_linear, student_t

LENGTH = (1, -1, -1, 1)  # head tokens, head steps, base tokens, base steps
SPEED = (1, -1, -1, 1, -1, 1, 1, -1)  # plain time, tokens, spec time, tokens: of head, of base


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviation of the log speedup ratio between blocks, and its degrees of freedom
    (those of as many independent arms)."""

    sigma: float
    degrees: float
    blocks: int

    @property
    def half_width(self) -> float:
        """Of the 95 % interval that this spread alone would give to a mean over the blocks."""
        return student_t(self.degrees) * self.sigma / math.sqrt(self.blocks)


def accept_length_ratio(base: Curve, head: Curve) -> Interval | None:
    """Accept length of head over that of base; None when no prompt is in both.

    Runs whose accepted drafts were not counted by request fall back to ``independent_ratio``.
    """
    if not (base.units and head.units):
        return _independent(base.accept_length, head.accept_length)
    mine = {(unit.workload, unit.prompt): unit for unit in head.units}
    rows = [
        (new.tokens, new.steps, old.tokens, old.steps)
        for old in base.units
        if (new := mine.get((old.workload, old.prompt)))
    ]
    return log_linear(np.asarray(rows, dtype=np.float64), LENGTH) if rows else None


def speedup_ratio(base: Curve, head: Curve, spread: Spread | None) -> Interval | None:
    """Speedup of head over that of base; ``spread`` is that of the cell, None: not known."""
    rows = _rows(base.timings, head.timings)
    if not rows:
        return _independent(base.speedup, head.speedup)
    by_prompt: dict[tuple[str, str], FloatArray] = {}
    for (workload, prompt, _), row in rows.items():
        by_prompt[workload, prompt] = by_prompt.get((workload, prompt), np.zeros(8)) + row
    found = log_linear(np.stack(list(by_prompt.values())), SPEED)
    if found is None or found.high is None:
        return found
    if spread is None:
        return replace(found, low=None, high=None)
    half = math.hypot(math.log(found.high / found.value), spread.half_width)
    return _around(found.value, half, found.n)


def block_spread(pairs: Sequence[tuple[Curve, Curve]]) -> Spread | None:
    """Scatter between blocks of the log speedup ratio, pooled over the arms of one cell.

    Args:
        pairs: (base, head) of each arm.

    Returns:
        None unless some arm has two blocks or more in both runs.
    """
    squares, degrees, blocks, arms = 0.0, 0, 0, 0
    for base, head in pairs:
        by_block: dict[int, FloatArray] = {}
        for (_, _, block), row in _rows(base.timings, head.timings).items():
            by_block[block] = by_block.get(block, np.zeros(8)) + row
        if len(by_block) < 2:
            continue
        logs = np.log(np.stack(list(by_block.values()))) @ np.asarray(SPEED, dtype=np.float64)
        squares += float(((logs - logs.mean()) ** 2).sum())
        degrees, arms = degrees + len(logs) - 1, arms + 1
        blocks = min(blocks, len(logs)) if blocks else len(logs)
    if degrees == 0:
        return None
    # Arms share the baseline's noise: their ratios correlate by a half, their squares by a quarter.
    return Spread(
        sigma=math.sqrt(squares / degrees), degrees=degrees / (1 + (arms - 1) / 4), blocks=blocks
    )


def independent_ratio(base: Estimate, head: Estimate) -> Interval | None:
    """``head`` ÷ ``base`` of two runs that share nothing; intervals symmetric in logarithms."""
    if base.value <= 0 or head.value <= 0:
        return None
    value, n = head.value / base.value, min(base.n, head.n)
    if base.high is None or head.high is None:
        return Interval(value=value, low=None, high=None, n=n)
    half = math.hypot(math.log(base.high / base.value), math.log(head.high / head.value))
    return _around(value, half, n)


def widened(ratio: Interval, judged: int) -> Interval:
    """The interval for one of ``judged`` comparisons, so that all hold together at 95 %."""
    if ratio.high is None or judged <= 1:
        return ratio
    tail, normal = (1 - CONFIDENCE) / 2, NormalDist()
    factor = normal.inv_cdf(1 - tail / judged) / normal.inv_cdf(1 - tail)
    return _around(ratio.value, math.log(ratio.high / ratio.value) * factor, ratio.n)


def _independent(base: Estimate | None, head: Estimate | None) -> Interval | None:
    return None if base is None or head is None else independent_ratio(base, head)


def _rows(base: Sequence[Timing], head: Sequence[Timing]) -> dict[tuple[str, str, int], FloatArray]:
    """The eight sums of every conversation and block that both runs timed."""
    mine = {(t.workload, t.prompt, t.block): _sums(t) for t in head}
    theirs = {(t.workload, t.prompt, t.block): _sums(t) for t in base}
    return {
        key: np.concatenate([mine[key], sums])
        for key, sums in theirs.items()
        if key in mine and (mine[key] > 0).all() and (sums > 0).all()
    }


def _sums(timing: Timing) -> FloatArray:
    return np.array(
        [timing.plain_ns, timing.plain_tokens, timing.spec_ns, timing.spec_tokens],
        dtype=np.float64,
    )


def _around(value: float, half: float, n: int) -> Interval:
    return Interval(value=value, low=value * math.exp(-half), high=value * math.exp(half), n=n)
