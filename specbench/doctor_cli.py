"""``specbench doctor``: why is acceptance low? Files, probe and symptoms in one ranked list."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from specbench import doctor_gap_cli, ids_cli
from specbench.doctor_gap_cli import given, refuse_empty, refuse_ignored
from specbench.doctor_pair_cli import (
    ALL,
    DEFAULTS,
    OF_PAIR,
    OF_RUNS,
    Outcome,
    add_pair,
    launch_findings,
    look_at_pair,
    parity_names,
)
from specbench.doctor_symptoms_cli import add_symptoms, asks_symptoms, symptoms
from specbench.errors import ConfigError, SpecbenchError, UsageError
from specbench.screen import new_console

if TYPE_CHECKING:
    from specbench.doctor.findings import Finding

_COUNTS = "--run, --metrics, --per-position or --accept-length"
_ASIDE = ("command", "command_line", "run", "doctor_command")
STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def add_parser(subparsers: Any) -> None:
    """The flags of ``specbench doctor``, and its actions ``ids`` and ``gap``."""
    parser = subparsers.add_parser(
        "doctor",
        help="why is acceptance low: name the wrong wire, with evidence and the line to change",
        description="Checks files and launch arguments, scores the draft under every other wiring, "
        "and reads shapes in what was measured. Exit code 1 on a finding of severity error.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="doctor_command", metavar="ACTION", action=_Actions)
    ids_cli.add_parser(actions)
    doctor_gap_cli.add_parser(actions)
    add_pair(parser)
    add_symptoms(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--explain",
        metavar="CODE",
        help="reasoning and numbers of one finding, or of those that name a failure (F4); alone: "
        "what it means, nothing is run",
    )
    group.add_argument("--json", action="store_true", help="JSON instead of a list")
    group.add_argument("--markdown", metavar="FILE", help="also write a section for a report")
    parser.set_defaults(run=_doctor)


class _Actions(argparse._SubParsersAction):  # type: ignore[type-arg]  # not generic when it runs
    """Refuses flags of the doctor before an action: argparse would drop them or mix them up."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        found = given(namespace, [name for name in vars(namespace) if name not in _ASIDE])
        if found:
            parser.error(f"{', '.join(found)}: write flags of {values[0]} after {values[0]}")
        super().__call__(parser, namespace, values, option_string)


def _doctor(args: argparse.Namespace) -> int:
    from specbench.doctor import report
    from specbench.doctor.findings import has_error, rank

    outcome = Outcome()
    found = outcome.found
    stopped: SpecbenchError | KeyboardInterrupt | None = None
    with_symptoms = asks_symptoms(args)
    looks = bool(args.target or args.draft or not (with_symptoms or args.launch))
    alone = given(args, [name for name in vars(args) if name not in _ASIDE]) == ["--explain"]
    _check_flags(args, with_symptoms, looks)
    if alone:
        new_console().print(report.meaning(args.explain), markup=False)
        return 0
    try:
        if args.launch and not (args.target or args.draft):
            found += launch_findings(args.launch, "")
        if with_symptoms:
            seen, outcome.judged = symptoms(args)
            found += seen
        if looks:
            look_at_pair(args, outcome)
    except (SpecbenchError, KeyboardInterrupt) as error:
        if not found or (isinstance(error, UsageError) and not args.target and not args.draft):
            raise
        stopped = error
    ranked = rank(found)
    console = new_console(soft_wrap=args.json)
    said = (*outcome.judged, *outcome.confirmed, *outcome.skipped)
    if args.markdown:
        _write(Path(args.markdown), report.markdown(ranked, said))
    if args.json:
        table = _table(outcome, ranked, _why(stopped))
        console.print(json.dumps(table, indent=2, allow_nan=False), markup=False)
    elif args.explain:
        console.print(report.explain(ranked, args.explain), markup=False)
    else:
        for line in outcome.judged:
            console.print(line, markup=False)
        _render(console, ranked, outcome, report.verdict_line(ranked))
    if stopped is not None:
        new_console(stderr=True).print(
            f"[bold red]specbench doctor stopped:[/] {escape(_why(stopped))} The above was learned "
            "before."
        )
        return stopped.exit_code if isinstance(stopped, SpecbenchError) else 3
    return 1 if has_error(ranked) else 0


def _table(outcome: Outcome, ranked: Sequence[Finding], stopped: str) -> dict[str, Any]:
    """All that is known as plain data."""
    from specbench.doctor.findings import to_json

    return {
        "findings": [to_json(finding) for finding in ranked],
        "judged": list(outcome.judged),
        "confirmed": outcome.confirmed,
        "skipped": outcome.skipped,
        "parity": outcome.parity,
        "step_costs": outcome.step_costs,
        "draft_spec": outcome.draft_spec,
        "stopped": stopped,
    }


def _why(stopped: SpecbenchError | KeyboardInterrupt | None) -> str:
    if stopped is None:
        return ""
    return str(stopped) if isinstance(stopped, SpecbenchError) else "interrupted."


def _check_flags(args: argparse.Namespace, with_symptoms: bool, looks: bool) -> None:
    """A code that exists, no flag that would be ignored; then the defaults."""
    from specbench.doctor.failures import check_explained

    refuse_empty(args)
    if args.explain:
        check_explained(args.explain)
    if args.explain and args.json:
        raise ConfigError(
            "--explain and --json are given together.",
            todo="Drop --explain: the JSON has the reasoning and the numbers of every finding.",
        )
    if bool(args.target) != bool(args.draft):
        raise ConfigError("--target and --draft go together.", todo="Give both, or neither.")
    parity_names(ALL if args.parity is None else args.parity)
    if not looks:
        where = "where no pair is looked at (the demo pair is not, beside counts or --launch)"
        refuse_ignored(args, OF_PAIR, where, "Add --target and --draft, or leave it out.")
    if args.static:
        refuse_ignored(
            args, OF_RUNS, "with --static, which runs no model", "Drop --static, or leave it out."
        )
    for name, value in DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    _check_beside(args, with_symptoms)
    for name, least in (("requests", 1), ("max_tokens", 2), ("tensor_parallel", 1)):
        number = getattr(args, name)
        if number is not None and number < least:
            raise ConfigError(
                f"--{name.replace('_', '-')} {number}.", expected=f"At least {least}."
            )


def _check_beside(args: argparse.Namespace, with_symptoms: bool) -> None:
    """Flags that only mean something beside another."""
    positions = args.run_dir or args.metrics or args.per_position
    no_ranks = args.tensor_parallel > 1 and "ranks" not in parity_names(args.parity)
    for name, needs, alone in (
        ("--control", "--run", args.control and not args.run_dir),
        ("--since", "--metrics", args.since and not args.metrics),
        ("--point", "--run or --metrics", args.point and not (args.run_dir or args.metrics)),
        ("--steps", "--per-position", args.steps is not None and args.per_position is None),
        ("--expect", "--run, --metrics or --per-position", args.expect and not positions),
        ("--break-even", _COUNTS, args.break_even is not None and not with_symptoms),
        ("--tensor-parallel", "ranks among --parity", no_ranks),
    ):
        if alone:
            raise ConfigError(f"{name} needs {needs}.")


def _write(path: Path, text: str) -> None:
    from specbench.journal import write_atomically

    write_atomically(path, text.encode())


def _render(console: Console, findings: Sequence[Finding], outcome: Outcome, verdict: str) -> None:
    """One finding a line with what to do under it; then what was confirmed, and skipped."""
    for finding in findings:
        head = Text.assemble(
            (f"{finding.severity.value:<8}", STYLES[finding.severity.value]),
            (f"{finding.code}  ", "bold"),
            finding.title,
        )
        console.print(head)
        if finding.remedy:
            console.print(Padding(Text(finding.remedy, style="dim"), (0, 0, 0, 8), expand=False))
    for line in outcome.confirmed:
        console.print(Text.assemble(("ok      ", "green"), line))
    for line in outcome.skipped:
        console.print(Text.assemble(("skipped ", "yellow"), line))
    console.print(Text(verdict, style="bold"))
    if findings:
        console.print(Text(f"More: --explain {findings[0].code}", style="dim"))
