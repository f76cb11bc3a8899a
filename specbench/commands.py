"""What each subcommand does with its settings: run, save, print."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from specbench import fitting, flags
from specbench.backends.base import Backend, BackendFacts, GapProbe, close_telling
from specbench.collectors.exposition import Metrics
from specbench.collectors.points import name_points
from specbench.collectors.publish import publishing
from specbench.conclude import conclude, facts_json
from specbench.dashboards.annotate import annotating, poster
from specbench.errors import ConfigError, OutputError, RunError, SpecbenchError
from specbench.explain import explain
from specbench.gpu_watch import GpuWatch, Place, watch_gpus
from specbench.grid import Grid
from specbench.live_view import LiveView
from specbench.metrics.summary import Summary
from specbench.progress import ProgressBar
from specbench.provenance import collect
from specbench.report import terminal
from specbench.run import new_recorder, pair_backend, server_backend
from specbench.serve_config import api_key, load_serve_config, read_api_key
from specbench.server.app import RunningServer
from specbench.server.lifetime import run_service
from specbench.server.logs import JsonLog, take_library_records
from specbench.store import RunDir, check_folder
from specbench.sweep import describe, plan_jobs, run_sweep
from specbench.sweep_spec import SweepSpec
from specbench.trace import Finish
from specbench.workload import Workload, load_workload

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _stamp() -> str:
    """The local time, for names."""
    return f"{dt.datetime.now(dt.UTC).astimezone():%Y%m%d-%H%M%S}"


def sweep(args: argparse.Namespace, console: Console) -> int:
    """``specbench sweep``: measure, save, report. Ctrl-C keeps what was measured."""
    if args.explain is not None:
        flags.check_alone(args, "explain")
        console.print(explain(flags.point(args.explain, "--explain")), markup=False)
        return 0
    if args.out == "":
        raise ConfigError("--out is empty.", expected="A folder.")
    out = Path(args.out or f"runs/sweep-{_stamp()}")
    spec = _resumed_spec(args, out) if args.resume else flags.sweep_spec(args)
    grid = spec.grid()
    workloads = [load_workload(name) for name in spec.workloads]
    spec = fitting.with_workloads(spec, workloads)
    jobs = plan_jobs(spec, grid.points, workloads)
    if flags.publish_config(args, api_key()).wanted:
        name_points(job.cell for job in jobs)  # refused before anything runs
    if args.grafana is not None:
        poster(args.grafana)  # likewise
    fitting.check_models(spec)
    backend = _backend(spec)
    check_folder(out, resume=args.resume)
    console.print(
        f"{len(grid.points)} points, {len(grid.dropped)} combinations dropped, {len(jobs)} blocks; "
        f"writing to {out}",
        markup=False,
    )
    for line in grid.told_drops():
        console.print(line, markup=False)
    notes = [*flags.grid_notes(args, spec, grid), *(caveat.text for caveat in spec.caveats)]
    notes += [f"{workload.name}: {note}" for workload in workloads for note in workload.notes]
    notes += fitting.arrival_notes(spec, workloads)
    for note in notes:
        console.print(f"note: {note}", markup=False)
    ours: list[RunDir] = []
    try:
        summary = run_async(_measure(backend, spec, grid, workloads, out, args, console, ours))
    except (KeyboardInterrupt, SpecbenchError) as stopped:
        _keep(out, console, ours)
        if isinstance(stopped, KeyboardInterrupt):
            console.print(
                f"Interrupted. Go on with: specbench sweep --resume --out {out}", markup=False
            )
            return 3
        raise
    terminal.show(out, summary, console)
    _refuse_silence(out)
    return 0


def _refuse_silence(out: Path) -> None:
    """Raise RunError when not one request was completed; the report says so, too."""
    first = ""
    with RunDir.open(out) as run_dir:
        for arm in run_dir.iter_runs():
            if any(trace.finish is not Finish.ERROR for trace in arm.requests):
                return
            first = first or arm.requests[0].error
    raise RunError(f"No request was completed, the first for this reason: {first}")


async def _measure(
    backend: Backend,
    spec: SweepSpec,
    grid: Grid,
    workloads: Sequence[Workload],
    out: Path,
    args: argparse.Namespace,
    console: Console,
    ours: list[RunDir],
) -> Summary:
    """Load the models once, run every block, and conclude while the models are at hand.

    ``ours`` receives the run directory once it is this process's own.
    """

    def tell(text: str) -> None:
        console.print(f"note: {text}", markup=False)

    gpu_interval_s = flags.gpu_interval_s(args)
    publish = flags.publish_config(args, api_key())
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(close_telling, backend, tell)
        facts = await backend.open()
        grid = _fitted(spec, grid, backend, workloads, tell)
        place = Place(server=spec.server, device=spec.engine.device)
        gpus = stack.enter_context(watch_gpus(place, facts, interval_s=gpu_interval_s, tell=tell))
        run_json = describe(spec, grid) | _found(args, facts, gpus, workloads)
        make = RunDir.resume if args.resume else RunDir.create
        run_dir = stack.enter_context(make(out, run_json))
        ours.append(run_dir)
        with (
            _watcher(args, console) as bar,
            annotating(args.grafana, bar, run_id=out.name, say=tell) as observer,
        ):
            async with publishing(
                publish, lambda: new_recorder(out.name, facts, backend), tell
            ) as published:
                published.add(gpus.series)
                await run_sweep(
                    spec,
                    backend=backend,
                    points=grid.points,
                    workloads=workloads,
                    run_dir=run_dir,
                    observer=observer,
                    recorder=published.recorder,
                    gpus=gpus,
                )
                await published.finish(out.name)
        return _concluded(run_dir, backend, tell)


def _fitted(
    spec: SweepSpec,
    asked: Grid,
    backend: Backend,
    workloads: Sequence[Workload],
    tell: Callable[[str], None],
) -> Grid:
    """What the opened backend runs of the grid; how much that is, where it is not all."""
    grid = fitting.fit_grid(spec, asked, backend, tell)
    if grid.points != asked.points:
        blocks = len(plan_jobs(spec, grid.points, workloads))
        tell(f"{len(grid.points)} of {len(asked.points)} points are left, {blocks} blocks")
    return grid


def _concluded(run_dir: RunDir, backend: Backend, tell: Callable[[str], None]) -> Summary:
    """Report while the models are at hand to judge near-ties, then compact the run."""
    for note in run_dir.notes:
        tell(note)
    summary = conclude(run_dir, gap=backend.top2_gap if isinstance(backend, GapProbe) else None)
    run_dir.finish()
    return summary


def _watcher(args: argparse.Namespace, console: Console) -> ProgressBar | LiveView:
    """The live view where it is asked for and can be drawn, else the bar."""
    if args.live and console.is_terminal:
        return LiveView(console)
    if args.live:
        console.print("note: --live draws on a terminal only, which the output is not.")
    return ProgressBar(console)


def _found(
    args: argparse.Namespace, facts: BackendFacts, gpus: GpuWatch, workloads: Sequence[Workload]
) -> dict[str, Any]:
    """The part of run.json that says what was there: the backend's facts and provenance."""
    inputs = {key: value for w in workloads for key, value in w.facts().items()}
    provenance = collect(
        args.command_line,
        device={**facts.device, **gpus.facts},
        inputs={**facts.inputs, **inputs},
    )
    return {"facts": facts_json(facts), "provenance": provenance}


def _backend(spec: SweepSpec) -> Backend:
    if spec.server is not None:
        return server_backend(
            spec.server, spec.baseline_server, spec.backend, api_key=api_key(), model=spec.model
        )
    return pair_backend(
        spec.target, spec.draft, spec.engine, spec.capture_ids, spec.capture_default
    )


def _resumed_spec(args: argparse.Namespace, out: Path) -> SweepSpec:
    """What the run in ``out`` was asked; flags that are given again must agree with it.

    Raises:
        ConfigError: no --out, or other flags are given.
        OutputError: there is no run in ``out``.
    """
    if args.out is None:
        raise ConfigError("--resume is given without --out.", todo="Give --out RUN_DIR.")
    with RunDir.open(out) as run_dir:
        before = SweepSpec.from_json(run_dir.run_json["asked"], source=f"{out}/run.json: asked")
    if flags.any_sweep_flag(args) and flags.sweep_spec(args) != before.as_asked:
        raise ConfigError(
            f"The flags ask for another sweep than the one in {out}.",
            expected="--resume takes all settings from the run directory.",
            todo="Leave the other flags out, or choose a new --out.",
        )
    return before


def _keep(out: Path, console: Console, ours: Sequence[RunDir]) -> None:
    """After a break: report whatever blocks are on disk; leave no empty folder behind.

    A folder that another process writes to is left alone: it never became one of ``ours``.
    """
    with contextlib.suppress(OSError):
        out.rmdir()
        if out.parent == Path("runs"):  # of the default name
            out.parent.rmdir()
    if not ours:
        return
    with contextlib.suppress(OutputError), RunDir.open(out) as run_dir:
        if run_dir.blocks():
            conclude(run_dir)
            console.print(f"{len(run_dir.blocks())} blocks are kept in {out}.", markup=False)


def serve(args: argparse.Namespace, console: Console) -> int:
    """``specbench serve``: the engine over HTTP until SIGINT or SIGTERM; logs to stderr."""
    path = None if args.config is None else Path(args.config)
    config = load_serve_config(path, flags.serve_settings(args))
    key = read_api_key(config, api_key())
    log = JsonLog(sys.stderr, config.log_level)
    take_library_records(log)
    for note in config.point.notes:
        console.print(f"note: {note}", markup=False)
    models = config.models
    backend = pair_backend(
        models.target, models.draft, config.engine, models.capture_ids, models.capture_default
    )

    def started(server: RunningServer) -> None:
        console.print(f"{config.point.spec.point_id} on {server.url}", markup=False)

    def tell(text: str) -> None:
        log.warning("gpu", text=text)

    with contextlib.ExitStack() as stack:

        def metrics(facts: BackendFacts) -> Metrics:
            page = Metrics(new_recorder(f"serve-{_stamp()}", facts, backend))
            place = Place(device=config.engine.device)
            gpus = stack.enter_context(watch_gpus(place, facts, keep=False, tell=tell))
            if gpus.series is not None:
                page.registry.register(gpus.series)
            return page

        service = run_service(
            backend, config, api_key=key, log=log, started=started, metrics=metrics
        )
        return run_async(service)
