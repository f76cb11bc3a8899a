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

from specbench import demo, doctor_gap_cli, ids_cli
from specbench.errors import ConfigError, SpecbenchError, UsageError

if TYPE_CHECKING:
    from specbench.doctor.checks_subject import Subject
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
    _add_pair(parser)
    _add_symptoms(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--explain", metavar="CODE", help="reasoning and numbers of one finding")
    group.add_argument("--json", action="store_true", help="JSON instead of a list")
    group.add_argument("--markdown", metavar="FILE", help="also write a section for a report")
    parser.set_defaults(run=_doctor)


def _add_pair(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pair (no flag at all: the shipped demo pair)")
    group.add_argument("--target", metavar="DIR", help="target checkpoint")
    group.add_argument("--draft", metavar="DIR", help="EAGLE-3 draft checkpoint")
    group.add_argument("--static", action="store_true", help="configs and headers only; no torch")
    group.add_argument("--capture-ids", metavar="K,K,K", help="physical layers trained on")
    group.add_argument(
        "--capture-default", action="store_true", help="trained on the default 2, n//2, n-3"
    )
    group.add_argument(
        "--propose-ids", metavar="K,K,K", help="physical layers to score beside the claimed ones"
    )
    group.add_argument(
        "--engine", default="", metavar="CODE==VERSION", help="judge layer ids for this engine"
    )
    group.add_argument("--launch", metavar="ARGS", help="launch arguments of SGLang or vLLM")
    group.add_argument("--workload", default="default", metavar="NAME", help="text of the probe")
    group.add_argument(
        "--requests", type=int, default=36, metavar="N", help="prompts of the probe (default 36)"
    )
    group.add_argument(
        "--max-tokens", type=int, default=32, metavar="N", help="reply tokens each (default 32)"
    )


def _add_symptoms(parser: argparse.ArgumentParser) -> None:
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


def _doctor(args: argparse.Namespace) -> int:
    from specbench.doctor import report
    from specbench.doctor.findings import has_error, rank, to_json

    found: list[Finding] = []
    confirmed: list[str] = []
    stopped: SpecbenchError | KeyboardInterrupt | None = None
    with_symptoms = _asks_symptoms(args)
    _check_flags(args, with_symptoms)
    try:
        if args.launch and not (args.target or args.draft):
            found += _launch(args.launch, "")
        if with_symptoms:
            found += _symptoms(args)
        if args.target or args.draft or not (with_symptoms or args.launch):
            _pair(args, found, confirmed)
    except (SpecbenchError, KeyboardInterrupt) as error:
        if not found or (isinstance(error, UsageError) and not args.target and not args.draft):
            raise
        stopped = error
    ranked = rank(found)
    console = Console(highlight=False, soft_wrap=args.json)
    if args.markdown:
        _write(Path(args.markdown), report.markdown(ranked, confirmed))
    if args.json:
        table = {
            "findings": [to_json(f) for f in ranked],
            "confirmed": confirmed,
            "stopped": _why(stopped),
        }
        console.print(json.dumps(table, indent=2, allow_nan=False), markup=False)
    elif args.explain:
        console.print(report.explain(ranked, args.explain), markup=False)
    else:
        _render(console, ranked, confirmed, report.verdict_line(ranked))
    if stopped is not None:
        Console(stderr=True, highlight=False).print(
            f"[bold red]specbench doctor stopped:[/] {escape(_why(stopped))} The above was learned "
            "before."
        )
        return stopped.exit_code if isinstance(stopped, SpecbenchError) else 3
    return 1 if has_error(ranked) else 0


def _why(stopped: SpecbenchError | KeyboardInterrupt | None) -> str:
    if stopped is None:
        return ""
    return str(stopped) if isinstance(stopped, SpecbenchError) else "interrupted."


def _asks_symptoms(args: argparse.Namespace) -> bool:
    return any(
        value is not None
        for value in (args.run_dir, args.metrics, args.accept_length, args.per_position)
    )


def _check_flags(args: argparse.Namespace, with_symptoms: bool) -> None:
    """Flags that only mean something beside another, and a code that exists."""
    from specbench.doctor.catalogue import check_code

    if args.explain:
        check_code(args.explain)
    if bool(args.target) != bool(args.draft):
        raise ConfigError("--target and --draft go together.", todo="Give both, or neither.")
    for name, needs, given in (
        ("--control", "--run", args.control and not args.run_dir),
        ("--since", "--metrics", args.since and not args.metrics),
        ("--steps", "--per-position", args.steps is not None and args.per_position is None),
        ("--expect", "symptoms", args.expect and not with_symptoms),
        ("--break-even", "symptoms", args.break_even is not None and not with_symptoms),
        ("--propose-ids", "the probe, so no --static", args.propose_ids and args.static),
    ):
        if given:
            raise ConfigError(f"{name} needs {needs}.")
    for name, least in (("requests", 1), ("max_tokens", 2)):
        if getattr(args, name) < least:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} {getattr(args, name)}.", expected=f"At least {least}.")


def _launch(text: str, arch: str) -> Sequence[Finding]:
    from specbench.doctor.checks_launch import check_launch, parse_launch

    return tuple(check_launch(parse_launch(text), arch))


def _pair(args: argparse.Namespace, found: list[Finding], confirmed: list[str]) -> None:
    """Static checks, then the probe; what was found stays found when the probe breaks off."""
    from specbench.checkpoint.conventions import parse_ids
    from specbench.doctor.checks import static_findings
    from specbench.doctor.checks_subject import read_subject
    from specbench.doctor.findings import has_error

    given = parse_ids(args.capture_ids or "", "--capture-ids") or None
    if given and args.capture_default:
        raise ConfigError("--capture-ids and --capture-default are both given.", todo="Drop one.")
    subject = read_subject(
        args.target or demo.TARGET,
        args.draft or demo.DRAFT,
        given=given,
        as_default=args.capture_default,
        engine=args.engine,
    )
    found += static_findings(subject)
    if args.launch:
        found += _launch(args.launch, subject.arch)
    if args.static:
        return
    if has_error(found):
        confirmed.append("The probe was left out: the files must be right first.")
        return
    _probe(args, subject, found, confirmed)


def _probe(
    args: argparse.Namespace, subject: Subject, found: list[Finding], confirmed: list[str]
) -> None:
    try:
        from specbench.doctor.checks_wiring import load, probe_pair
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        confirmed.append(
            "The probe was left out: it needs torch (pip install 'specbench[engine]')."
        )
        return
    from specbench.checkpoint.conventions import parse_ids
    from specbench.request import SamplingParams
    from specbench.workload import load_workload

    sampling = SamplingParams(max_tokens=args.max_tokens)
    requests = load_workload(args.workload).requests(args.requests, sampling)
    proposed = parse_ids(args.propose_ids or "", "--propose-ids") or None
    with Console(stderr=True).status("scoring the draft under every wiring"):
        probed = probe_pair(subject, load(subject, requests), proposed=proposed)
    found += probed.findings
    confirmed += probed.confirmed


def _symptoms(args: argparse.Namespace) -> Sequence[Finding]:
    from specbench.doctor.symptoms import diagnose
    from specbench.doctor.symptoms_data import from_numbers
    from specbench.doctor.symptoms_metrics import read_metrics
    from specbench.doctor.symptoms_run import check_control, read_run

    expected = doctor_gap_cli.numbers(args.expect, "--expect")
    found: list[Finding] = []
    if args.run_dir:
        seen, break_even = read_run(Path(args.run_dir))
        cost = break_even if args.break_even is None else args.break_even
        found += diagnose(seen, expected=expected, break_even=cost)
        for control in args.control:
            kind, _, folder = control.partition("=")
            if not folder:
                raise ConfigError(f"--control {control!r}.", expected="KIND=DIR.")
            found.append(check_control(seen, read_run(Path(folder))[0], kind))
    if args.metrics:
        seen = read_metrics(args.metrics, args.since)
        found += diagnose(seen, expected=expected, break_even=args.break_even)
    if args.accept_length is not None or args.per_position is not None:
        shares = doctor_gap_cli.numbers(args.per_position, "--per-position")
        seen = from_numbers(args.accept_length, shares, args.steps)
        found += diagnose(seen, expected=expected, break_even=args.break_even)
    return found


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
            console.print(Padding(Text(finding.remedy, style="dim"), (0, 0, 0, 8)))
    for line in confirmed:
        console.print(Text.assemble(("ok      ", "green"), line))
    console.print(Text(verdict, style="bold"))
    if findings:
        console.print(Text(f"More: --explain {findings[0].code}", style="dim"))
