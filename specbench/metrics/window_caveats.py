"""Reservations about the measured window: who else was in it, and whether the machine kept still.

=================== ======== ===================================================================
code                severity when
=================== ======== ===================================================================
warmup_in_window    warning  warm-up requests ran inside the measured window
cold_graphs         warning  the first forward of a batch size took over 4 times the usual time,
                             and over 20 ms more: kernels or graphs were made in the window
other_traffic       warning  steps ran with more requests than this run had in flight
machine_drift       warning  the arm's step time moved by over a quarter between blocks
within_noise_floor  note     the speedup lies inside what plain decoding shows against itself
noise_floor_biased  warning  plain decoding differs from itself, by more than chance allows
=================== ======== ===================================================================

A speedup is paired block by block, so drift takes less from it than from tokens/s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Estimate, Severity
from specbench.metrics.arms import Arm
from specbench.metrics.power import half_width
from specbench.metrics.stats import percentile

COLD_GRAPH = 4.0
COLD_GRAPH_NS = 20_000_000
LEAST_FORWARDS = 30
DRIFT = 0.25
CHANCE = 1.7  # 95 % half widths: a normal error exceeds them in 1 of 1,100 comparisons

Forward = tuple[int, int, int, int]  # block, number, batch, time


def window_caveats(
    arm: Arm, spec: SpecConfig, speedup: Estimate | None, noise: Estimate | None
) -> Iterable[Caveat]:
    """What happened in the windows of ``arm``; ``noise`` is the A/A comparison of its cell."""
    yield from _warmup(arm)
    forwards = _forwards(arm)
    yield from _cold_graphs(forwards)
    yield from _traffic(arm, forwards)
    yield from _drift(arm, forwards)
    yield from _floor(spec, speedup, noise)


def _warmup(arm: Arm) -> Iterable[Caveat]:
    warm = sum(trace.warmup for run in arm.runs for trace in run.requests)
    if warm:
        yield _warning(
            "warmup_in_window",
            f"{warm} warm-up requests ran inside the measured window, whose length tokens/s "
            "divides by",
        )


def _forwards(arm: Arm) -> list[Forward]:
    """Every forward of the arm once, in order."""
    found = {
        (request.block, step.batch_step): (step.batch, step.wall_ns)
        for request in arm.requests
        for step in request.trace.steps
        if step.wall_ns > 0
    }
    return [(block, number, *found[block, number]) for block, number in sorted(found)]


def _cold_graphs(forwards: list[Forward]) -> Iterable[Caveat]:
    by_batch: dict[int, list[int]] = {}
    for _, _, batch, ns in forwards:
        by_batch.setdefault(batch, []).append(ns)
    for batch, times in sorted(by_batch.items()):
        usual = percentile([float(ns) for ns in times[1:]], 50)
        if usual is None or len(times) < LEAST_FORWARDS:
            continue
        if times[0] > max(COLD_GRAPH * usual, usual + COLD_GRAPH_NS):
            yield _warning(
                "cold_graphs",
                f"the first forward at batch size {batch} took {times[0] / usual:.0f} times the "
                f"usual time ({times[0] / 1e6:.0f} ms)",
            )
            return


def _traffic(arm: Arm, forwards: list[Forward]) -> Iterable[Caveat]:
    most = arm.key.cell.batch_size
    crowded = sum(batch > most for _, _, batch, _ in forwards)
    if crowded:
        yield _warning(
            "other_traffic",
            f"{crowded} of {len(forwards)} forwards ran more than the {most} requests of this run",
        )


def _drift(arm: Arm, forwards: list[Forward]) -> Iterable[Caveat]:
    """Median time of the forwards at full batch, block against block."""
    blocks: dict[int, list[float]] = {}
    for block, _, batch, ns in forwards:
        if batch == arm.key.cell.batch_size:
            blocks.setdefault(block, []).append(float(ns))
    medians = [percentile(ns, 50) or 0.0 for ns in blocks.values() if len(ns) >= LEAST_FORWARDS]
    if len(medians) > 1 and max(medians) > (1 + DRIFT) * min(medians):
        yield _warning(
            "machine_drift",
            f"the median step took {min(medians) / 1e6:.2f} ms in one block and "
            f"{max(medians) / 1e6:.2f} ms in another",
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
