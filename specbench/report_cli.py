"""``specbench report``: rebuild the reports of a run, or print every tool's number for it."""

from __future__ import annotations

import argparse
import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from specbench.errors import ConfigError
from specbench.screen import new_console


def add_parser(subparsers: Any) -> None:
    """The flags of ``specbench report``."""
    parser = subparsers.add_parser(
        "report",
        help="rebuild summary.csv, report.md and plots of a run directory",
        description="Rebuild every report of a run directory from what was measured.",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument(
        "--definitions",
        nargs="?",
        const="",
        metavar="POINT",
        help="only print which tool would show which number for the best point (or for POINT, "
        "such as k3), and why",
    )
    add_judging(parser)
    parser.set_defaults(run=_report)


def add_judging(parser: argparse.ArgumentParser) -> None:
    """``--slo`` and ``--reader-rate``, which a sweep has, too."""
    group = parser.add_argument_group("what latency is judged by")
    group.add_argument(
        "--slo",
        metavar="LIMITS",
        help="goodput: share of requests within ttft=200ms,tpot=30ms,e2e=2s (any of them)",
    )
    group.add_argument(
        "--reader-rate",
        type=float,
        metavar="R",
        help="replay every stream to a reader of R tokens/s and report the time it stalls",
    )


def _report(args: argparse.Namespace) -> int:
    from specbench.conclude import conclude
    from specbench.metrics.goodput import check_latency, parse_objectives
    from specbench.report import terminal
    from specbench.store import RunDir

    judging = [f for f, v in (("--slo", args.slo), ("--reader-rate", args.reader_rate)) if v]
    if args.definitions is not None and judging:
        raise ConfigError(
            f"{', '.join(judging)}: has no meaning with --definitions, which prints no latency.",
            todo="Leave it out.",
        )
    check_latency(args.slo, args.reader_rate)
    out, console = Path(args.run_dir), new_console()
    with RunDir.open(out) as run_dir:
        if args.definitions is not None:
            return _definitions(run_dir, args.definitions, console)
        with _uncollected():
            summary = conclude(
                run_dir,
                objectives=parse_objectives(args.slo) if args.slo else None,
                reader_tok_s=args.reader_rate,
            )
    terminal.show(out, summary, console)
    return 0


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection: searching the objects of a big run takes a fifth of its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _definitions(run_dir: Any, point: str, console: Console) -> int:
    from specbench.conclude import summary_input
    from specbench.metrics.summary import ledger_of
    from specbench.report import wording
    from specbench.report.ledger import account_text, value_text

    key, rows, account = ledger_of(summary_input(run_dir), point)
    cell = key.cell
    console.print(
        f"{key.point_id} on {cell.workload}, temperature {cell.temperature:g}, batch size "
        f"{cell.batch_size}",
        style="bold",
        markup=False,
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("tool", "figure", "value", "why"):
        table.add_column(name, overflow="fold", justify="right" if name == "value" else "left")
    for row in rows:
        table.add_row(row.tool, row.field, value_text(row.value), row.why)
    console.print(table, markup=False)
    console.print(account_text(account) or wording.MISSING, markup=False, soft_wrap=True)
    return 0
