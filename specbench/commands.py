"""What each subcommand does with its settings: run, save, print."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import os
import signal
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from specbench import demo, flags
from specbench.backends.base import Backend, GapProbe
from specbench.conclude import conclude, facts_json
from specbench.config import EngineConfig
from specbench.errors import ConfigError, OutputError, SpecbenchError
from specbench.explain import explain
from specbench.grid import Grid
from specbench.progress import ProgressBar
from specbench.provenance import collect
from specbench.report import terminal
from specbench.run import inprocess_backend, remote_backend
from specbench.server.app import build_app
from specbench.server.app import serve as start_server
from specbench.store import RunDir, check_folder
from specbench.sweep import SweepSpec, describe, plan_jobs, run_sweep
from specbench.workload import Workload, load_workload

T = TypeVar("T")
API_KEY_VARIABLE = "SPECBENCH_API_KEY"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def api_key() -> str | None:
    """The key from the environment; never a flag, so that it stays out of process lists."""
    return os.environ.get(API_KEY_VARIABLE) or None


def sweep(args: argparse.Namespace, console: Console) -> int:
    """``specbench sweep``: measure, save, report. Ctrl-C keeps what was measured."""
    if args.explain:
        console.print(explain(flags.point(args.explain, "--explain")), markup=False)
        return 0
    out = Path(args.out or f"runs/sweep-{dt.datetime.now(dt.UTC).astimezone():%Y%m%d-%H%M%S}")
    spec = _resumed_spec(args, out) if args.resume else flags.sweep_spec(args)
    grid = spec.grid()
    workloads = [load_workload(name) for name in spec.workloads]
    jobs = plan_jobs(spec, grid.points, workloads)
    check_folder(out, resume=args.resume)
    console.print(
        f"{len(grid.points)} points, {len(grid.dropped)} combinations dropped, {len(jobs)} blocks; "
        f"writing to {out}",
        markup=False,
    )
    for workload in workloads:
        for note in workload.notes:
            console.print(f"note: {workload.name}: {note}", markup=False)
    try:
        run_async(_measure(spec, grid, workloads, out, args, console))
    except (KeyboardInterrupt, SpecbenchError) as stopped:
        _keep(out, console)
        if isinstance(stopped, KeyboardInterrupt):
            console.print(f"Interrupted. Go on with: specbench sweep --resume --out {out}")
            return 3
        raise
    _show(out, console)
    return 0


async def _measure(
    spec: SweepSpec,
    grid: Grid,
    workloads: Sequence[Workload],
    out: Path,
    args: argparse.Namespace,
    console: Console,
) -> None:
    """Load the models once, run every block, and conclude while the models are at hand."""
    backend = _backend(spec)
    try:
        facts = await backend.open()
        inputs = {key: value for w in workloads for key, value in w.facts().items()}
        run_json = describe(spec, grid) | {
            "facts": facts_json(facts),
            "provenance": collect(
                args.command_line, device=facts.device, inputs={**facts.inputs, **inputs}
            ),
        }
        make = RunDir.resume if args.resume else RunDir.create
        with make(out, run_json) as run_dir:
            with ProgressBar(console) as bar:
                await run_sweep(
                    spec,
                    backend=backend,
                    points=grid.points,
                    workloads=workloads,
                    run_dir=run_dir,
                    observer=bar,
                )
            for note in run_dir.notes:
                console.print(f"note: {note}", markup=False)
            conclude(run_dir, gap=backend.top2_gap if isinstance(backend, GapProbe) else None)
            run_dir.finish()
    finally:
        await backend.close()


def _backend(spec: SweepSpec) -> Backend:
    if spec.server is not None:
        return remote_backend(spec.server, spec.backend, api_key=api_key())
    return _inprocess(spec.target, spec.draft, spec.engine, spec.capture_ids, spec.capture_default)


def _inprocess(
    target: str | None,
    draft: str | None,
    engine: EngineConfig,
    capture_ids: tuple[int, ...] | None,
    capture_default: bool | None,
) -> Backend:
    """The engine on the given pair, or on the shipped one when neither folder is given."""
    if target is None and draft is not None:
        raise ConfigError("--draft is given without --target.", todo="Give both, or neither.")
    shipped = target is None
    return inprocess_backend(
        demo.TARGET if target is None else Path(target),
        demo.DRAFT if shipped else (None if draft is None else Path(draft)),
        engine,
        capture_ids=capture_ids,
        capture_default=bool(capture_default),
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
    if flags.any_sweep_flag(args) and flags.sweep_spec(args) != before:
        raise ConfigError(
            f"The flags ask for another sweep than the one in {out}.",
            expected="--resume takes all settings from the run directory.",
            todo="Leave the other flags out, or choose a new --out.",
        )
    return before


def _keep(out: Path, console: Console) -> None:
    """After a break: report whatever blocks are on disk; leave no empty folder behind."""
    with contextlib.suppress(OSError):
        out.rmdir()
    with contextlib.suppress(OutputError), RunDir.open(out) as run_dir:
        if run_dir.blocks():
            conclude(run_dir)
            console.print(f"{len(run_dir.blocks())} blocks are kept in {out}.", markup=False)


def _show(out: Path, console: Console) -> None:
    """The last screen: the summary, then the paths of what was written."""
    with RunDir.open(out) as run_dir:
        terminal.render(conclude(run_dir), console)
    names = sorted(p.name for p in out.iterdir() if p.suffix in (".csv", ".md", ".html", ".png"))
    console.print(f"\nWrote {out}/: {', '.join(names)}", markup=False, soft_wrap=True)


def report(args: argparse.Namespace, console: Console) -> int:
    """``specbench report RUN_DIR``: rebuild every report from what was measured."""
    _show(Path(args.run_dir), console)
    return 0


def serve(args: argparse.Namespace, console: Console) -> int:
    """``specbench serve``: the engine over HTTP until SIGINT or SIGTERM."""
    run_async(_serve(args, console))
    return 0


async def _serve(args: argparse.Namespace, console: Console) -> None:
    spec = flags.single_point(args)
    engine = flags.engine_config(args, max_batch_size=args.batch_size)
    backend = _inprocess(
        args.target, args.draft, engine, flags.capture_ids(args), args.capture_default
    )
    try:
        facts = await backend.open()
        await backend.configure(spec, args.batch_size)
        app = build_app(backend, facts, spec=spec, batch_size=args.batch_size, api_key=api_key())
        server = await start_server(app, args.host, args.port)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        console.print(f"{facts.target} with {spec.point_id} on {server.url}", markup=False)
        await stop.wait()
        await server.stop()
    finally:
        await backend.close()
