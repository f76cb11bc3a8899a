"""The doctor's symptom flags: what was counted elsewhere, read into findings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.doctor_gap_cli import numbers
from specbench.errors import ConfigError

if TYPE_CHECKING:
    from specbench.doctor.findings import Finding
    from specbench.doctor.symptoms_data import Observed


def add_symptoms(parser: argparse.ArgumentParser) -> None:
    """Declare the flags that give counts."""
    group = parser.add_argument_group("symptoms (any of them; a pair is then looked at if named)")
    group.add_argument("--run", dest="run_dir", metavar="DIR", help="a run directory")
    group.add_argument(
        "--control",
        action="append",
        default=[],
        metavar="KIND=DIR",
        help="a run that differs in one thing: graph, batch, rank, cache, template, temperature, "
        "quantisation (repeatable, with --run)",
    )
    group.add_argument(
        "--point",
        metavar="ID",
        help="judge this point (k3, k3b2n8) of --run or of specbench's page, not the deepest chain",
    )
    group.add_argument("--metrics", metavar="FILE_OR_URL", help="Prometheus page of a server")
    group.add_argument("--since", metavar="FILE_OR_URL", help="an earlier page to subtract")
    group.add_argument("--accept-length", type=float, metavar="X", help="bonus token counted")
    group.add_argument(
        "--per-position", metavar="S,S,...", help="share of steps that accepted at least 1, 2, ..."
    )
    group.add_argument("--steps", type=int, metavar="N", help="verify steps behind these numbers")
    group.add_argument(
        "--break-even", type=float, metavar="X", help="cost of a verify step in plain steps"
    )
    group.add_argument(
        "--expect", metavar="C,C,...", help="conditional acceptance that the draft should reach"
    )


def asks_symptoms(args: argparse.Namespace) -> bool:
    """Whether any counts are given."""
    return any(
        value is not None
        for value in (args.run_dir, args.metrics, args.accept_length, args.per_position)
    )


def symptoms(args: argparse.Namespace) -> tuple[Sequence[Finding], tuple[str, ...]]:
    """Findings of everything that was given, and what of a run or of counters was judged.

    Raises:
        UsageError: what was given cannot be read.
    """
    from specbench.doctor.symptoms import diagnose
    from specbench.doctor.symptoms_data import from_numbers
    from specbench.doctor.symptoms_metrics import read_metrics
    from specbench.doctor.symptoms_run import check_control, read_run

    expected = numbers(args.expect, "--expect")
    if not all(0 <= share <= 1 for share in expected):
        raise ConfigError(f"--expect {args.expect}.", expected="Shares from 0 to 1: 0.7,0.6.")
    found: list[Finding] = []
    judged: list[str] = []
    if args.run_dir:
        seen, break_even = read_run(Path(args.run_dir), args.point)
        judged.append(f"Judged {seen.source}: {seen.basis} ({seen.chosen}).")
        judged += _unjudged(seen, expected, args.break_even)
        cost = break_even if args.break_even is None else args.break_even
        found += diagnose(seen, expected=expected, break_even=cost)
        for control in args.control:
            kind, _, folder = control.partition("=")
            if not folder:
                raise ConfigError(f"--control {control!r}.", expected="KIND=DIR.")
            found.append(check_control(seen, read_run(Path(folder), seen.point)[0], kind))
    if args.metrics:
        seen = read_metrics(args.metrics, args.since, args.point)
        judged.append(f"Judged {seen.source}: {seen.basis}.")
        judged += _unjudged(seen, expected, args.break_even)
        found += diagnose(seen, expected=expected, break_even=args.break_even)
    if args.accept_length is not None or args.per_position is not None:
        shares = numbers(args.per_position, "--per-position")
        seen = from_numbers(args.accept_length, shares, args.steps)
        judged += _unjudged(seen, expected, args.break_even)
        found += diagnose(seen, expected=expected, break_even=args.break_even)
    return found, tuple(judged)


def _unjudged(seen: Observed, expected: Sequence[float], break_even: float | None) -> Iterator[str]:
    """What was given and could not be used on these counts, a sentence each."""
    judged = [share for share in seen.conditional if share.high is not None]
    if expected and not judged:
        yield f"--expect was not used: {seen.source} has no positions with an interval."
    elif expected and len(expected) != len(seen.conditional):
        yield (
            f"--expect names {len(expected)} positions and {seen.source} has "
            f"{len(seen.conditional)}: only those in both were compared."
        )
    if break_even is not None and (seen.accept_length is None or seen.accept_length.high is None):
        yield f"--break-even was not used: {seen.source} has no accept length with an interval."
