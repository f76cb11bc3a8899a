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
from specbench.doctor_pair_cli import (
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
    actions = parser.add_subparsers(dest="doctor_command", metavar="ACTION")
    ids_cli.add_parser(actions)
    doctor_gap_cli.add_parser(actions)
    add_pair(parser)
    add_symptoms(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--explain", metavar="CODE", help="reasoning and numbers of one finding")
    group.add_argument("--json", action="store_true", help="JSON instead of a list")
    group.add_argument("--markdown", metavar="FILE", help="also write a section for a report")
    parser.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    from specbench.doctor import report
    from specbench.doctor.findings import has_error, rank, to_json

    outcome = Outcome()
    found = outcome.found
    stopped: SpecbenchError | KeyboardInterrupt | None = None
    with_symptoms = asks_symptoms(args)
    _check_flags(args, with_symptoms)
    try:
        if args.launch and not (args.target or args.draft):
            found += launch_findings(args.launch, "")
        if with_symptoms:
            seen, outcome.judged = symptoms(args)
            found += seen
        if args.target or args.draft or not (with_symptoms or args.launch):
            look_at_pair(args, outcome)
    except (SpecbenchError, KeyboardInterrupt) as error:
        if not found or (isinstance(error, UsageError) and not args.target and not args.draft):
            raise
        stopped = error
    ranked = rank(found)
    console = new_console(soft_wrap=args.json)
    if args.markdown:
        _write(Path(args.markdown), report.markdown(ranked, (*outcome.judged, *outcome.confirmed)))
    if args.json:
        table = {
            "findings": [to_json(f) for f in ranked],
            "judged": list(outcome.judged),
            "confirmed": outcome.confirmed,
            "parity": outcome.parity,
            "step_costs": outcome.step_costs,
            "draft_spec": outcome.draft_spec,
            "stopped": _why(stopped),
        }
        console.print(json.dumps(table, indent=2, allow_nan=False), markup=False)
    elif args.explain:
        console.print(report.explain(ranked, args.explain), markup=False)
    else:
        for line in outcome.judged:
            console.print(line, markup=False)
        _render(console, ranked, outcome.confirmed, report.verdict_line(ranked))
    if stopped is not None:
        new_console(stderr=True).print(
            f"[bold red]specbench doctor stopped:[/] {escape(_why(stopped))} The above was learned "
            "before."
        )
        return stopped.exit_code if isinstance(stopped, SpecbenchError) else 3
    return 1 if has_error(ranked) else 0


def _why(stopped: SpecbenchError | KeyboardInterrupt | None) -> str:
    if stopped is None:
        return ""
    return str(stopped) if isinstance(stopped, SpecbenchError) else "interrupted."


def _check_flags(args: argparse.Namespace, with_symptoms: bool) -> None:
    """Flags that only mean something beside another, and a code that exists."""
    from specbench.doctor.catalogue import check_code

    if args.explain:
        check_code(args.explain)
    parity_names(args.parity)
    if bool(args.target) != bool(args.draft):
        raise ConfigError("--target and --draft go together.", todo="Give both, or neither.")
    for name, needs, given in (
        ("--control", "--run", args.control and not args.run_dir),
        ("--since", "--metrics", args.since and not args.metrics),
        ("--steps", "--per-position", args.steps is not None and args.per_position is None),
        ("--expect", "symptoms", args.expect and not with_symptoms),
        ("--break-even", "symptoms", args.break_even is not None and not with_symptoms),
        ("--propose-ids", "the probe, so no --static", args.propose_ids and args.static),
        ("--tensor-parallel", "ranks among --parity", _no_ranks(args)),
    ):
        if given:
            raise ConfigError(f"{name} needs {needs}.")
    for name, least in (("requests", 1), ("max_tokens", 2), ("tensor_parallel", 1)):
        given = getattr(args, name)
        if given is not None and given < least:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} {given}.", expected=f"At least {least}.")


def _no_ranks(args: argparse.Namespace) -> bool:
    """Ranks are asked for, and their probe is left out."""
    return args.tensor_parallel > 1 and (args.static or "ranks" not in parity_names(args.parity))


def _write(path: Path, text: str) -> None:
    from specbench.journal import write_atomically

    write_atomically(path, text.encode())


def _render(
    console: Console, findings: Sequence[Finding], confirmed: Sequence[str], verdict: str
) -> None:
    """One finding a line with what to do under it; then what was confirmed."""
    for finding in findings:
        head = Text.assemble(
            (f"{finding.severity.value:<8}", STYLES[finding.severity.value]),
            (f"{finding.code}  ", "bold"),
            finding.title,
        )
        console.print(head)
        if finding.remedy:
            console.print(Padding(Text(finding.remedy, style="dim"), (0, 0, 0, 8), expand=False))
    for line in confirmed:
        console.print(Text.assemble(("ok      ", "green"), line))
    console.print(Text(verdict, style="bold"))
    if findings:
        console.print(Text(f"More: --explain {findings[0].code}", style="dim"))
