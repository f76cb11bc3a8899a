"""The progress bar of a sweep, with the running estimate of what is being measured."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from specbench.sweep import Job
from specbench.trace import ArmRun


class ProgressBar:
    """An Observer of ``run_sweep`` that draws on ``console``; a context manager."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("blocks"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def started(self, jobs: int, done: int) -> None:
        """Set the scale."""
        self._progress.update(self._task, total=jobs, completed=done)

    def saved(self, job: Job, arm: ArmRun) -> None:
        """Move on by one block and show what it measured."""
        self._progress.update(
            self._task, advance=1, description=f"batch {job.batch_size} {_estimate(job, arm)}"
        )


def _estimate(job: Job, arm: ArmRun) -> str:
    """Accept length and throughput of one block, where they were seen."""
    steps = [step for trace in arm.requests for step in trace.steps]
    tokens = sum(trace.usage.completion_tokens or 0 for trace in arm.requests if not trace.error)
    parts = [f"{job.point.point_id:>9}"]
    if steps and job.point.spec.num_steps:
        parts.append(f"accept length {1 + sum(s.accepted for s in steps) / len(steps):.2f}")
    if tokens and arm.wall_ns:
        parts.append(f"{tokens / arm.wall_ns * 1e9:.0f} tok/s")
    return "  ".join(parts)
