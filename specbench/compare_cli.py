"""``specbench compare BASE HEAD``: the flags, the terminal table, the gate."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specbench import reference
from specbench.errors import ConfigError
from specbench.fingerprint import SCOPES, Difference, Scope, differences
from specbench.journal import write_atomically
from specbench.metrics.comparison import Change, Comparison, compare
from specbench.metrics.curves import Curve, by_key
from specbench.metrics.figures import ALL
from specbench.report import comparing
from specbench.report.markdown import markdown
from specbench.screen import new_console

MARGIN = "3%"
COLOURS = {Change.BETTER: "green", Change.WORSE: "bold red", Change.NOT_COMPARABLE: "yellow"}


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "compare",
        help="hold one run against another: better, worse, same, with intervals",
        description="Each of BASE and HEAD is a run directory or a saved reference. "
        "Exit code 1: something is worse by more than the margin, outputs that were the target's "
        "own are no longer, nothing could be compared, or HEAD lacks an arm or a figure that BASE "
        "measured. Arms of HEAD alone are named.",
        allow_abbrev=False,
    )
    parser.add_argument("base", metavar="BASE", help="run directory or reference")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="run directory or reference")
    parser.add_argument(
        "--margin",
        metavar="SHARE",
        help="a figure may fall by this much before it counts: 3%% (default) or 0.03",
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="TOPIC",
        help=f"compare although this differs (repeatable): {', '.join(_blocking())}",
    )
    parser.add_argument(
        "--allow-not-comparable",
        action="store_true",
        help="exit code 0 although figures or arms of BASE could not be compared",
    )
    parser.add_argument("--markdown", metavar="FILE", help="write it for a pull request too")
    parser.add_argument(
        "--save-reference",
        metavar="FILE",
        help="keep the curves of HEAD (of BASE, when it stands alone) as a reference",
    )
    parser.set_defaults(run=_compare)


def _compare(args: argparse.Namespace) -> int:
    console, margin = new_console(), _margin(args.margin or MARGIN)
    unknown = sorted(set(args.accept) - set(_blocking()))
    if unknown:
        raise ConfigError(
            f"--accept {unknown[0]} is no topic.", expected=f"One of {', '.join(_blocking())}."
        )
    base = reference.read(Path(args.base))
    if args.head is None:
        if args.save_reference is None:
            raise ConfigError("There is nothing to compare with.", todo="Give HEAD as well.")
        names = ("margin", "accept", "markdown", "allow_not_comparable")
        alone = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name)]
        if alone:
            raise ConfigError(
                f"{', '.join(alone)}: has no meaning without HEAD.", todo="Give HEAD, or drop it."
            )
        return _save(base, args.save_reference, console)
    head = reference.read(Path(args.head))
    found = [one for one in differences(base.topics, head.topics) if one.topic not in args.accept]
    result = compare(base.curves, head.curves, found, margin=margin)
    _render(result, console)
    if args.markdown is not None:
        blocks = comparing.document(result, Path(args.base).name, Path(args.head).name)
        write_atomically(Path(args.markdown), markdown(blocks))
        console.print(f"Wrote {args.markdown}", markup=False)
    if args.save_reference is not None:
        _save(head, args.save_reference, console)
    if result.change is Change.WORSE:
        return 1
    lost = _not_compared(result, base.curves)
    if not lost or args.allow_not_comparable:
        return 0
    console.print(
        f"Exit code 1: {lost}, so this is no pass (--allow-not-comparable to take it as one).",
        markup=False,
    )
    return 1


def _not_compared(result: Comparison, base: Sequence[Curve]) -> str:
    """Why a gate must not open, although nothing is worse; empty when it may.

    A figure of BASE counts that HEAD lacks or that has no interval, and an arm that only BASE
    has; what differing machines keep apart does not, as long as something else was compared.
    """
    if result.change is Change.NOT_COMPARABLE:
        return "nothing was compared"
    old = by_key(base)
    lost = [
        f"{row.figure} of {comparing.arm(row.key)} ({row.reason})"
        for row in result.judged
        if row.change is Change.NOT_COMPARABLE
        and row.base is not None
        and not old[row.key, ALL].invalid
        and not (row.figure == "speedup" and result.apart)
    ]
    lost += [f"{comparing.arm(key)} (not in HEAD)" for key in result.lost]
    return f"not compared: {', '.join(lost)}" if lost else ""


def _save(kept: reference.Reference, file: str, console: Console) -> int:
    reference.save(kept, Path(file))
    arms = sum(curve.category == ALL for curve in kept.curves)
    console.print(f"Wrote {file}: {arms} arms, fingerprint {kept.fingerprint[:12]}", markup=False)
    return 0


def _blocking() -> list[str]:
    return [topic for topic, scope in SCOPES.items() if scope is not Scope.CHANGE]


def _margin(text: str) -> float:
    """A share from ``3%`` or ``0.03``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ConfigError(f"--margin {text}.", expected="A share from 0 to under 1: 3% or 0.03.")
    return value


def _render(result: Comparison, console: Console) -> None:
    style = COLOURS.get(result.change, "bold")
    console.print(Text(comparing.verdict(result), style=style))
    for one in result.differences:
        console.print(Text(_line(one), style="yellow" if one.scope else "dim"))
    for key, before, after in result.lossless:
        console.print(Text(f"{comparing.arm(key)}: was {before}, is {after}", style="bold red"))
    shown = [row for row in result.rows if row.category == ALL]
    if shown:
        plain = comparing.table(shown)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name, left in zip(plain.columns, plain.left, strict=True):
            table.add_column(name, justify="left" if left else "right", overflow="fold")
        for row, cells in zip(shown, plain.rows, strict=True):
            table.add_row(*(Text(cell) for cell in cells), style=COLOURS.get(row.change, ""))
        console.print(table)
        console.print(Text(comparing.explanation(result), style="dim"))
    for name, missing in (("BASE", result.only_base), ("HEAD", result.only_head)):
        if missing:
            arms = ", ".join(comparing.arm(key) for key in missing)
            console.print(Text(f"Only in {name}, not compared: {arms}", style="dim"))


def _line(one: Difference) -> str:
    blocks = {Scope.SPEED: "times are not compared", Scope.ALL: "nothing is compared"}
    note = blocks.get(one.scope)
    end = f"; {note} (--accept '{one.topic}' to do so)" if note else ""
    verb = "differs" if one.known else "may differ"
    return f"{one.topic} {verb}: {one.base} -> {one.head}{end}"
