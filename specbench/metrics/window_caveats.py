"""Reservations about the measured window: who else was in it, and what plain decoding shows.

=================== ======== ===================================================================
code                severity when
=================== ======== ===================================================================
warmup_in_window    warning  warm-up requests ran inside the measured window
cold_graphs         warning  the first forward of a batch size took over 4 times the usual time,
                             over 20 ms more, and longer than any other: kernels or graphs were
                             made in the window
other_traffic       warning  steps ran with more requests than this run had in flight
within_noise_floor  note     the speedup lies inside what plain decoding shows against itself
noise_floor_biased  warning  plain decoding differs from itself, by more than chance allows
=================== ======== ===================================================================

Whether the machine kept its speed is asked in drift_caveats.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Estimate, Severity
from specbench.metrics.arms import Arm
from specbench.metrics.drift_caveats import CHANCE, LEAST_FORWARDS
from specbench.metrics.forwards import Forwards
from specbench.metrics.power import half_width
from specbench.metrics.stats import percentile

COLD_GRAPH = 4.0
COLD_GRAPH_NS = 20_000_000


def window_caveats(
    arm: Arm, spec: SpecConfig, speedup: Estimate | None, noise: Estimate | None
) -> Iterable[Caveat]:
    """What happened in the windows of ``arm``; ``noise`` is the A/A comparison of its cell."""
    yield from _warmup(arm)
    yield from _cold_graphs(arm.forwards)
    yield from _traffic(arm)
    yield from _floor(spec, speedup, noise)


def _warmup(arm: Arm) -> Iterable[Caveat]:
    warm = sum(trace.warmup for run in arm.runs for trace in run.requests)
    if warm:
        yield _warning(
            "warmup_in_window",
            f"{warm} warm-up requests ran inside the measured window, whose length tokens/s "
            "divides by",
        )


def _cold_graphs(forwards: Forwards) -> Iterable[Caveat]:
    wall_ns = forwards.wall_ns
    for batch in np.unique(forwards.batch):
        times = wall_ns[forwards.batch == batch]
        usual = percentile(times[1:], 50)
        if usual is None or len(times) < LEAST_FORWARDS:
            continue
        bound = max(COLD_GRAPH * usual, usual + COLD_GRAPH_NS)
        # A machine that halts now and then does so at any forward, seldom longest at the first.
        if times[0] > bound and times[0] == times.max():
            yield _warning(
                "cold_graphs",
                f"the first forward at batch size {batch} took {times[0] / usual:.0f} times the "
                f"usual time ({times[0] / 1e6:.0f} ms)",
            )
            return


def _traffic(arm: Arm) -> Iterable[Caveat]:
    most, batch = arm.key.cell.batch_size, arm.forwards.batch
    crowded = int((batch > most).sum())
    if crowded:
        yield _warning(
            "other_traffic",
            f"{crowded} of {len(batch)} forwards ran more than the {most} requests of this run",
        )


def _floor(spec: SpecConfig, speedup: Estimate | None, noise: Estimate | None) -> Iterable[Caveat]:
    half = half_width(noise)
    if noise is None or half is None:
        return
    if spec.is_baseline:
        if abs(math.log(noise.value)) > CHANCE * half:
            yield _warning(
                "noise_floor_biased",
                f"plain decoding against itself gives {noise.value:.3f}x: order, drift or other "
                "work favours one arm",
            )
    elif speedup is not None and (noise.low or 0) <= speedup.value <= (noise.high or 0):
        yield Caveat(
            code="within_noise_floor",
            severity=Severity.NOTE,
            text=f"plain decoding against itself gives [{noise.low:.3f}, {noise.high:.3f}], which "
            f"holds the speedup {speedup.value:.3f}",
        )


def _warning(code: str, text: str) -> Caveat:
    return Caveat(code=code, severity=Severity.WARNING, text=text)
