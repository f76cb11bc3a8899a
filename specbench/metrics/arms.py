"""Blocks of a run gathered into arms: one point on one workload at one batch size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specbench.metrics.forwards import Forwards, forwards_of
from specbench.metrics.latency import end_to_end_ns
from specbench.metrics.pool import Pool
from specbench.metrics.stats import FloatArray
from specbench.metrics.sums import complete_sums
from specbench.trace import ArmRun, RequestTrace

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """What two arms must share to be compared."""

    workload: str
    temperature: float
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ArmKey:
    """One point in one cell: a row of the summary."""

    cell: Cell
    point_id: str


@dataclass(frozen=True, kw_only=True)
class Arm:
    """All blocks of one arm. ``requests`` holds the sums of its complete requests."""

    key: ArmKey
    runs: tuple[ArmRun, ...]
    requests: Pool

    @cached_property
    def measured(self) -> tuple[RequestTrace, ...]:
        """Every request but the warm-up, failed ones included."""
        return tuple(t for run in self.runs for t in run.requests if not t.warmup)

    @cached_property
    def accepted(self) -> int:
        """Drafts that its requests accepted, as far as anything tells."""
        return sum(r.accepted or r.trace.usage.accepted or 0 for r in self.requests)

    @cached_property
    def forwards(self) -> Forwards:
        """The forwards behind its complete requests' steps."""
        return forwards_of(self.requests, alone=self.key.cell.batch_size == 1)

    @cached_property
    def window_shares(self) -> FloatArray:
        """Seconds of its block's window for each request, in proportion to its flight."""
        flights = self.requests.counts(end_to_end_ns)
        blocks = np.array([request.block for request in self.requests], dtype=np.int64)
        shares = np.zeros(len(self.requests))
        for run in self.runs:
            inside = np.flatnonzero(blocks == run.block)
            total = float(flights[inside].sum())
            if total > 0:
                shares[inside] = run.wall_ns / NS_PER_S * flights[inside] / total
        return shares


def key_of(run: ArmRun) -> ArmKey:
    """The arm that a block belongs to."""
    cell = Cell(workload=run.workload, temperature=run.temperature, batch_size=run.batch_size)
    return ArmKey(cell=cell, point_id=run.point_id)


def gather(runs: Iterable[ArmRun]) -> dict[ArmKey, Arm]:
    """The arms of ``runs`` in order of appearance, blocks in order."""
    blocks: dict[ArmKey, list[ArmRun]] = {}
    for run in runs:
        blocks.setdefault(key_of(run), []).append(run)
    arms = {}
    for key, found in blocks.items():
        ordered = tuple(sorted(found, key=lambda run: run.block))
        arms[key] = Arm(key=key, runs=ordered, requests=Pool(complete_sums(ordered)))
    return arms
