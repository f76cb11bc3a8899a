"""A sweep: every point of a grid in interleaved blocks, saved block by block, resumable.

Arms of one cell (workload, temperature, batch size) take turns on the same prompts: block after
block, each block once per arm, the order rotated so that no arm always goes first (semantics.md
13). A killed sweep goes on with the next block; counts are those of one that was not killed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from specbench.backends.base import Backend
from specbench.collectors.live import Recorder
from specbench.collectors.points import Cell
from specbench.conclude import add_caveats
from specbench.config import Arrival
from specbench.errors import ConfigError
from specbench.gpu_watch import GpuWatch
from specbench.grid import Grid, Point
from specbench.rejected import Rejections
from specbench.request import Request, SamplingParams
from specbench.run import Watch, run_block
from specbench.store import RunDir
from specbench.sweep_spec import SweepSpec
from specbench.trace import ArmRun
from specbench.workload import Workload

ArmKey = tuple[str, str, int, float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One block of one arm: what the sweep does between two saves.

    ``due_ns`` are the arrivals of a timed trace, from the first of the block on.
    """

    point: Point
    workload: Workload
    temperature: float
    batch_size: int
    block: int
    requests: tuple[Request, ...]
    due_ns: tuple[int, ...] = ()

    @property
    def key(self) -> ArmKey:
        """What identifies the block in a run directory."""
        return (
            self.point.point_id,
            self.workload.name,
            self.batch_size,
            self.temperature,
            self.block,
        )

    @property
    def cell(self) -> Cell:
        """What runs, as it is labelled for Prometheus."""
        return Cell(
            spec=self.point.spec,
            batch_size=self.batch_size,
            temperature=self.temperature,
            workload=self.workload.name,
        )


class Observer(Protocol):
    """Watches a sweep: a progress bar, a live page, a log."""

    def started(self, jobs: int, done: int) -> None:
        """``jobs`` blocks in all, of which ``done`` were there already."""
        ...

    def saved(self, job: Job, arm: ArmRun) -> None:
        """A block has been measured and is on disk."""
        ...


@runtime_checkable
class BlockObserver(Protocol):
    """An observer that also sees each block while it runs."""

    def began(self, job: Job) -> Watch:
        """A block begins; what is returned watches it."""
        ...


def plan_jobs(spec: SweepSpec, points: Sequence[Point], workloads: Sequence[Workload]) -> list[Job]:
    """All blocks in the order in which they run; pure, the same for the same arguments.

    Raises:
        ConfigError: two workloads have the same name.
        WorkloadError: a workload has fewer prompts than are asked for.
    """
    names = [workload.name for workload in workloads]
    if len(set(names)) < len(names):
        raise ConfigError(f"Workloads {names} repeat a name.", expected="Each a name of its own.")
    return [
        job
        for workload in workloads
        for temperature in spec.temperatures
        for batch_size in spec.batch_sizes
        for job in _cell(spec, points, workload, temperature, batch_size)
    ]


def _cell(
    spec: SweepSpec,
    points: Sequence[Point],
    workload: Workload,
    temperature: float,
    batch_size: int,
) -> Iterator[Job]:
    """The jobs of one cell: block by block, arms rotated by one from block to block."""
    sampling = SamplingParams(temperature=temperature, seed=spec.seed)
    most = workload.max_tokens if spec.max_tokens is None else spec.max_tokens
    if most is not None:
        sampling = dataclasses.replace(sampling, max_tokens=most)
    asked = workload.requests(spec.requests, sampling)
    due_ns: tuple[int, ...] = ()
    if spec.load.arrival is Arrival.TRACE:
        timed = workload.schedule(sampling)[: spec.requests]
        asked, due_ns = tuple(r for _, r in timed), tuple(round(at * 1e9) for at, _ in timed)
    blocks = spec.blocks_at(batch_size)
    for block in range(blocks):
        of_block = slice(block * len(asked) // blocks, (block + 1) * len(asked) // blocks)
        part, due = asked[of_block], due_ns[of_block]
        turn = block % len(points)
        for point in (*points[turn:], *points[:turn]):
            yield Job(
                point=point,
                workload=workload,
                temperature=temperature,
                batch_size=batch_size,
                block=block,
                requests=part,
                due_ns=tuple(at - due[0] for at in due),
            )


async def run_sweep(
    spec: SweepSpec,
    *,
    backend: Backend,
    points: Sequence[Point],
    workloads: Sequence[Workload],
    run_dir: RunDir,
    observer: Observer,
    recorder: Recorder | None = None,
    gpus: GpuWatch | None = None,
) -> None:
    """Run every block that the run directory does not hold yet, saving each when it ends.

    A cancelled sweep leaves whole blocks only. ``recorder`` counts the measured requests live,
    ``gpus`` are sampled beside them.

    Raises:
        ConfigError: more points than ``recorder`` has labels for.
    """
    jobs = plan_jobs(spec, points, workloads)
    add_caveats(run_dir, "", spec.caveats)
    warm, rejections = set[tuple[object, ...]](), Rejections(backend)
    for job in _unsaved(jobs, run_dir, observer, recorder):
        arm_key = job.key[:-1]  # all but the block
        cold = arm_key not in warm
        arm, caveats = await run_block(
            backend,
            spec=job.point.spec,
            workload=job.workload.name,
            temperature=job.temperature,
            batch_size=job.batch_size,
            block=job.block,
            requests=job.requests,
            load=spec.load,
            warmup=spec.load.warmup_requests if cold else 0,
            due_ns=job.due_ns,
            watches=_watches(job, recorder, observer),
        )
        arm = rejections.keep(dataclasses.replace(arm, point_id=job.point.point_id))
        samples = gpus.take() if gpus else ()
        warm.add(arm_key)
        add_caveats(run_dir, job.point.point_id, caveats)
        run_dir.save_block(arm)
        if gpus:
            gpus.save(run_dir, samples)
        observer.saved(job, arm)
        if recorder is not None:
            recorder.block_saved()


def _unsaved(
    jobs: Sequence[Job], run_dir: RunDir, observer: Observer, recorder: Recorder | None
) -> list[Job]:
    """The jobs whose blocks are not there yet; who watches hears of all."""
    done = run_dir.blocks()
    todo = [job for job in jobs if job.key not in done]
    observer.started(len(jobs), len(jobs) - len(todo))
    if recorder is not None:
        recorder.plan([job.cell for job in jobs], saved=len(jobs) - len(todo))
    return todo


def _watches(job: Job, recorder: Recorder | None, observer: Observer) -> list[Watch]:
    """Who looks at a block while it runs."""
    watches: list[Watch] = [] if recorder is None else [recorder.begin(job.cell)]
    if isinstance(observer, BlockObserver):
        watches.append(observer.began(job))
    return watches


def describe(spec: SweepSpec, grid: Grid) -> dict[str, Any]:
    """The part of run.json that says what was asked and what it was resolved to."""
    return {
        "asked": spec.to_json(),
        "points": {point.point_id: dataclasses.asdict(point.spec) for point in grid.points},
        "derived": [point.point_id for point in grid.points if point.derived],
        "overrides": {
            point.point_id: [dataclasses.asdict(change) for change in point.overrides]
            for point in grid.points
            if point.overrides
        },
        "dropped": [dataclasses.asdict(gone) for gone in grid.dropped],
    }
