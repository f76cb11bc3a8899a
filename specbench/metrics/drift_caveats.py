"""Reservations about time itself: did the arm begin cold, and did the machine keep its speed?

================ ======== ======================================================================
code             severity when
================ ======== ======================================================================
cold_start       warning  the arm's first request took over 1.5 times the usual time a step, and
                          moves the arm's time per step out of what the other requests allow
machine_drift    warning  a half of the run gives a speedup that the interval of the whole cannot
                          hold: the arms' shares of a drift differ
step_time_varied note     the arm's step time moved by over a quarter between parts of the run
================ ======== ======================================================================

A speedup is paired within interleaved blocks. A machine that slows all arms of a block alike leaves
it as it is, which ``step_time_varied`` says; ``machine_drift`` is what pairing did not cancel.
"Cannot hold" and "out of" mean over ``CHANCE`` half widths of a 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from specbench.estimate import Caveat, Estimate, Severity
from specbench.metrics.arms import Arm
from specbench.metrics.power import half_width
from specbench.metrics.speedup import paired
from specbench.metrics.stats import LEAST_RUNS, log_linear, percentile
from specbench.metrics.throughput import full_batch_forwards

COLD = 1.5
LEAST_FORWARDS = 30
DRIFT = 0.25
STRETCHES = 4
CHANCE = 1.7  # half widths of an interval: a normal error exceeds them in 1 of 1,100 comparisons


def drift_caveats(arm: Arm, baseline: Arm | None, speedup: Estimate | None) -> Iterable[Caveat]:
    """What the times of ``arm`` show; ``speedup`` is its own over ``baseline``, where known."""
    yield from _cold_start(arm)
    if baseline is not None:
        yield from _unlike_halves(arm, baseline, speedup)
    yield from _step_time(arm)


def _cold_start(arm: Arm) -> Iterable[Caveat]:
    """The first request sent against the others, in time per step (or per delivery)."""
    timed = [
        (request.trace.sent_ns, request.decode_ns, request.verify_steps or request.deliveries - 1)
        for request in arm.requests
        if request.decode_ns is not None and (request.verify_steps or request.deliveries > 1)
    ]
    if len(timed) <= LEAST_RUNS:
        return
    rows = np.array([row[1:] for row in sorted(timed)], dtype=np.float64)
    first, *others = (rows[:, 0] / rows[:, 1]).tolist()
    usual = percentile(others, 50) or first
    rest, whole = (log_linear(of, (1, -1), least=LEAST_RUNS) for of in (rows[1:], rows))
    if first <= COLD * usual or rest is None or whole is None or rest.high is None:
        return
    if math.log(whole.value / rest.value) > CHANCE * math.log(rest.high / rest.value):
        yield _warning(
            "cold_start",
            f"the first request took {first / usual:.1f} times the usual time per step, and alone "
            f"slows the arm by {whole.value / rest.value - 1:.1%}: the warm-up was too short",
        )


def _unlike_halves(arm: Arm, baseline: Arm, speedup: Estimate | None) -> Iterable[Caveat]:
    half = half_width(speedup)
    pairs = paired(baseline.requests, arm.requests)
    blocks = sorted({plain.block for plain, _ in pairs})
    if speedup is None or half is None or len(blocks) < 2:
        return
    middle = blocks[len(blocks) // 2]
    sums = np.zeros((2, 4))
    for plain, spec in pairs:
        sums[int(plain.block >= middle)] += (
            plain.decode_ns or 0,
            plain.decode_tokens or 0,
            spec.decode_ns or 0,
            spec.decode_tokens or 0,
        )
    rows = np.vstack([sums, sums.sum(axis=0)])
    first, second, whole = (rows[:, 0] / rows[:, 1] / (rows[:, 2] / rows[:, 3])).tolist()
    if max(abs(math.log(value / whole)) for value in (first, second)) > CHANCE * half:
        yield _warning(
            "machine_drift",
            f"the first half of the run gives a speedup of {first:.2f}, the second {second:.2f}: "
            f"farther apart than the interval [{speedup.low:.2f}, {speedup.high:.2f}] can hold",
        )


def _step_time(arm: Arm) -> Iterable[Caveat]:
    """Median time of the forwards at full batch, one stretch of the run against another.

    A stretch is a block, or some neighbouring ones where there are many: a few slow seconds are
    no drift.
    """
    full = full_batch_forwards(arm)
    wall_ns = full.wall_ns
    stretches = np.array_split(np.unique(full.block), STRETCHES)
    times = [wall_ns[np.isin(full.block, blocks)] for blocks in stretches if len(blocks)]
    medians = [percentile(ns, 50) or 0.0 for ns in times if len(ns) >= LEAST_FORWARDS]
    if len(medians) > 1 and max(medians) > (1 + DRIFT) * min(medians):
        yield _note(
            "step_time_varied",
            f"the median step took {min(medians) / 1e6:.2f} ms in one part of the run and "
            f"{max(medians) / 1e6:.2f} ms in another: tok/s and latencies are a mixture, the "
            "paired speedup is not",
        )


def _note(code: str, text: str) -> Caveat:
    return Caveat(code=code, severity=Severity.NOTE, text=text)


def _warning(code: str, text: str) -> Caveat:
    return Caveat(code=code, severity=Severity.WARNING, text=text)
