"""Tokens per second over the measured windows, and where a step's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.estimate import Estimate
from specbench.metrics.acceptance import as_estimate, clustered, weakest
from specbench.metrics.arms import Arm
from specbench.metrics.forwards import Forwards
from specbench.metrics.latency import NS_PER_MS, end_to_end_ns
from specbench.metrics.stats import log_linear
from specbench.metrics.sums import RequestSums

NS_PER_S = 1e9


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
    shares = _window_shares(arm)
    kept = [r for r in arm.requests if category is None or r.category == category]
    if any(r.completion is None for r in kept):
        return None
    rows = clustered(kept, lambda r: (r.completion or 0, shares.get(id(r), 0.0)))
    return as_estimate(log_linear(rows, (1, -1)), unit="tok/s", evidence=weakest(kept))


def _window_shares(arm: Arm) -> dict[int, float]:
    """Seconds of its block's window for each request, by identity, in proportion to its flight."""
    shares: dict[int, float] = {}
    by_block: dict[int, list[RequestSums]] = {}
    for request in arm.requests:
        by_block.setdefault(request.block, []).append(request)
    for run in arm.runs:
        inside = by_block.get(run.block, [])
        flights = [float(end_to_end_ns(r) or 0) for r in inside]
        total = sum(flights)
        if total > 0:
            for request, flight in zip(inside, flights, strict=True):
                shares[id(request)] = run.wall_ns / NS_PER_S * flight / total
    return shares


def full_batch_forwards(arm: Arm, category: str | None = None) -> Forwards:
    """The forwards that ran at the arm's whole batch, at batch size 1 those of a category."""
    seen = arm.forwards
    kept = seen.batch == arm.key.cell.batch_size
    if category is not None:
        inside = [request.category == category for request in arm.requests]
        kept &= np.array(inside, dtype=np.bool_)[seen.request]
    return seen.where(kept)


def step_split(arm: Arm, category: str | None = None) -> StepSplit | None:
    """Mean step time and its parts over the forwards at full batch; None when none was timed."""
    if category is not None and arm.key.cell.batch_size != 1:
        return None
    forwards = full_batch_forwards(arm, category)
    if not len(forwards):
        return None
    draft, extend, verify, other = forwards.parts.sum(axis=1) / (len(forwards) * NS_PER_MS)
    return StepSplit(
        forwards=len(forwards),
        draft_ms=float(draft),
        extend_ms=float(extend),
        verify_ms=float(verify),
        other_ms=float(other),
    )


def outside_share(requests: Sequence[RequestSums]) -> float | None:
    """Share of decode time that no verify step of the request covers.

    Prefill of other requests, scheduling and delivery. None unless every step was timed.
    """
    timed = [(r.decode_ns, r.step_ns) for r in requests if r.decode_ns is not None]
    if not timed or any(step is None for _, step in timed):
        return None
    decode = sum(decode or 0 for decode, _ in timed)
    return 1 - sum(step or 0 for _, step in timed) / decode
