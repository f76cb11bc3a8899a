"""A sweep: every point of a grid in interleaved blocks, saved block by block, resumable.

Arms of one cell (workload, temperature, batch size) take turns on the same prompts: block after
block, each block once per arm, the order rotated so that no arm always goes first (semantics.md
13). A killed sweep goes on with the next block; counts are those of one that was not killed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from specbench.backends.base import Backend
from specbench.collectors.live import Recorder
from specbench.collectors.points import Cell
from specbench.conclude import add_caveats
from specbench.config import EngineConfig, LoadConfig, SpecConfig, load_strict
from specbench.errors import ConfigError
from specbench.estimate import Caveat
from specbench.gpu_watch import GpuWatch
from specbench.grid import Grid, Point, expand
from specbench.rejected import Rejections
from specbench.request import Request, SamplingParams
from specbench.run import Watch, run_block
from specbench.store import RunDir
from specbench.trace import ArmRun
from specbench.workload import Workload

ArmKey = tuple[str, str, int, float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """What a sweep is asked to do; stored in run.json and compared when it is resumed.

    ``requests`` is the number of prompts of each arm, split into ``blocks`` blocks; into fewer at
    a batch size where a block would not fill the batch ``waves`` times (0: never fewer). Paths are
    None for the shipped pair; ``server`` is the address of an outside server, ``model`` one of
    its models. ``noise_floor`` adds a second plain arm; ``slo`` and ``reader_rate`` are what the
    report judges latency by.
    """

    target: str | None = None
    draft: str | None = None
    server: str | None = None
    backend: str = "auto"
    model: str | None = None
    workloads: tuple[str, ...] = ("default",)
    num_steps: tuple[int, ...] = (0, 1, 2, 3, 5)
    topk: tuple[int, ...] = (1, 4)
    num_draft_tokens: tuple[int, ...] = (8, 16)
    batch_sizes: tuple[int, ...] = (1,)
    temperatures: tuple[float, ...] = (0.0,)
    requests: int = 20
    blocks: int = 2
    waves: int = 0
    max_tokens: int | None = None
    seed: int = 0
    capture_ids: tuple[int, ...] | None = None
    capture_default: bool = False
    as_engine: str | None = None
    engine: EngineConfig = EngineConfig()
    load: LoadConfig = LoadConfig()
    noise_floor: bool = False
    slo: str | None = None
    reader_rate: float | None = None

    def __post_init__(self) -> None:
        if self.requests < 1 or not 1 <= self.blocks <= self.requests:
            raise ConfigError(
                f"requests={self.requests} blocks={self.blocks}.",
                expected="At least one block, and no more blocks than requests.",
            )
        for name in ("workloads", "num_steps", "topk", "num_draft_tokens"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty.", expected="At least one value.")
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ConfigError(f"batch_sizes={self.batch_sizes}.", expected="Each at least 1.")
        if not self.temperatures or min(self.temperatures) < 0:
            raise ConfigError(f"temperatures={self.temperatures}.", expected="Each at least 0.")

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What the settings themselves have to be held against, at every point."""
        return self.engine.rules.unused(self.temperatures)

    def blocks_at(self, batch_size: int) -> int:
        """The blocks of one arm at ``batch_size``.

        Short blocks keep slow seconds of the machine from hitting one arm alone, but a batch is
        full only until the last requests of a block run out.
        """
        if self.waves == 0 or batch_size == 1:
            return self.blocks
        return max(1, min(self.blocks, self.requests // (self.waves * batch_size)))

    def grid(self) -> Grid:
        """The points to run and what was dropped.

        Raises:
            ConfigError: nothing that was asked is left but the baseline, which was not asked.
        """
        grid = expand(self.num_steps, self.topk, self.num_draft_tokens, as_engine=self.as_engine)
        grid = grid.without(self.engine.rules)
        if grid.dropped and len(grid.points) == 1 and 0 not in self.num_steps:
            raise ConfigError(f"No point of the grid is legal. The first: {grid.dropped[0].reason}")
        if self.noise_floor:
            again = Point(spec=SpecConfig.baseline(), again=True)
            return dataclasses.replace(grid, points=(*grid.points, again))
        return grid

    def to_json(self) -> dict[str, Any]:
        """Plain data, the inverse of ``from_json``."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, source: str) -> SweepSpec:
        """Read what ``to_json`` wrote; raises ConfigError on unknown keys or wrong types."""
        return load_strict(cls, values, source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One block of one arm: what the sweep does between two saves."""

    point: Point
    workload: Workload
    temperature: float
    batch_size: int
    block: int
    requests: tuple[Request, ...]

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
    blocks = spec.blocks_at(batch_size)
    for block in range(blocks):
        part = asked[block * len(asked) // blocks : (block + 1) * len(asked) // blocks]
        turn = block % len(points)
        for point in (*points[turn:], *points[:turn]):
            yield Job(
                point=point,
                workload=workload,
                temperature=temperature,
                batch_size=batch_size,
                block=block,
                requests=part,
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
    jobs, done = plan_jobs(spec, points, workloads), run_dir.blocks()
    add_caveats(run_dir, "", spec.caveats)
    todo = [job for job in jobs if job.key not in done]
    observer.started(len(jobs), len(jobs) - len(todo))
    if recorder is not None:
        recorder.plan([job.cell for job in jobs], saved=len(jobs) - len(todo))
    warm, rejections = set[tuple[str, int]](), Rejections(backend)
    for job in todo:
        cold = (job.point.point_id, job.batch_size) not in warm
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
            watches=_watches(job, recorder, observer),
        )
        arm = rejections.keep(dataclasses.replace(arm, point_id=job.point.point_id))
        samples = gpus.take() if gpus else ()
        warm.add((job.point.point_id, job.batch_size))
        add_caveats(run_dir, job.point.point_id, caveats)
        run_dir.save_block(arm)
        if gpus:
            gpus.save(run_dir, samples)
        observer.saved(job, arm)
        if recorder is not None:
            recorder.block_saved()


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
