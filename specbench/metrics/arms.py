"""Blocks of a run gathered into arms: one point on one workload at one batch size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from specbench.metrics.forwards import Forwards, forwards_of
from specbench.metrics.sums import RequestSums, complete_sums
from specbench.trace import ArmRun, RequestTrace


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
    requests: tuple[RequestSums, ...]

    @property
    def measured(self) -> tuple[RequestTrace, ...]:
        """Every request but the warm-up, failed ones included."""
        return tuple(t for run in self.runs for t in run.requests if not t.warmup)

    @cached_property
    def forwards(self) -> Forwards:
        """The forwards behind its complete requests' steps."""
        return forwards_of(self.requests, alone=self.key.cell.batch_size == 1)


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
        arms[key] = Arm(key=key, runs=ordered, requests=complete_sums(ordered))
    return arms
