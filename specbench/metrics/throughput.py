"""Tokens per second over the measured windows, and where a step's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.estimate import Estimate
from specbench.metrics.acceptance import as_estimate
from specbench.metrics.arms import Arm
from specbench.metrics.forwards import Forwards
from specbench.metrics.latency import NS_PER_MS
from specbench.metrics.pool import Pool
from specbench.metrics.stats import log_linear
from specbench.metrics.sums import RequestSums


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSplit:
    """Mean wall time of one forward and its four parts, in ms, over ``forwards`` forwards."""

    forwards: int
    draft_ms: float
    extend_ms: float
    verify_ms: float
    other_ms: float

    @property
    def step_ms(self) -> float:
        """The whole step: the sum of its parts."""
        return self.draft_ms + self.extend_ms + self.verify_ms + self.other_ms


def output_tok_s(arm: Arm, category: str | None = None) -> Estimate | None:
    """Output tokens per second of the arm's measured windows, the prefill's tokens included.

    Sum of completion tokens ÷ sum of the windows of all blocks. For the interval each window is
    shared out over its requests by the time each was in flight, so that a resample of requests
    takes its time along. At batch 1 that attribution is exact enough to give a category its own
    figure; at a larger batch requests share the machine and a category has none (semantics.md 14).

    Args:
        arm: the arm.
        category: keep only this category; needs batch size 1.
    """
    if category is not None and arm.key.cell.batch_size != 1:
        return None
    kept = arm.requests.of_category(category)
    if not kept.knows("completion"):
        return None
    seconds = arm.window_shares[arm.requests.inside(category)]
    rows = kept.add_up(kept.column("completion"), seconds)
    return as_estimate(log_linear(rows, (1, -1)), unit="tok/s", evidence=kept.weakest)


def full_batch_forwards(arm: Arm) -> Forwards:
    """The forwards that ran at the arm's whole batch."""
    return arm.forwards.where(arm.forwards.batch == arm.key.cell.batch_size)


def step_split(arm: Arm, category: str | None = None) -> StepSplit | None:
    """Mean step time and its parts over the forwards at full batch; None when none was timed."""
    if category is not None and arm.key.cell.batch_size != 1:
        return None
    kept = arm.forwards.batch == arm.key.cell.batch_size
    if category is not None:
        kept &= arm.requests.inside(category)[arm.forwards.request]
    forwards = int(kept.sum())
    if not forwards:
        return None
    totals = [part[kept].sum() for part in arm.forwards.parts]
    draft, extend, verify, other = (float(total / (forwards * NS_PER_MS)) for total in totals)
    return StepSplit(
        forwards=forwards, draft_ms=draft, extend_ms=extend, verify_ms=verify, other_ms=other
    )


def outside_share(requests: Sequence[RequestSums]) -> float | None:
    """Share of decode time that no verify step of the request covers.

    Prefill of other requests, scheduling and delivery. None unless every step was timed.
    """
    pool = Pool.of(requests)
    decode, steps = pool.column("decode_ns"), pool.column("step_ns")
    timed = ~np.isnan(decode)
    if not timed.any() or np.isnan(steps[timed]).any():
        return None
    return float(1 - steps[timed].sum() / decode[timed].sum())
