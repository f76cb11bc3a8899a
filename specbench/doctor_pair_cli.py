"""The doctor's look at a pair: files, the wiring probe, parity of the engine, and step costs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from specbench import demo
from specbench.draft_flags import OFFSETS, add_draft_flags
from specbench.errors import CheckpointError, ConfigError
from specbench.screen import new_console

if TYPE_CHECKING:
    from specbench.doctor.checks_subject import Subject
    from specbench.doctor.findings import Finding
    from specbench.doctor.parity import ParityReport
    from specbench.doctor.step_costs import StepCosts
    from specbench.doctor.wiring_more import Reserve
    from specbench.engine.pair import ModelPair
    from specbench.request import Request

ALL, NONE = "all", "none"
SECONDS = 60
OF_RUNS = {
    "workload": "default",
    "requests": None,
    "max_tokens": 32,
    "parity": ALL,
    "tensor_parallel": 1,
    "propose_ids": None,
}
DEFAULTS = {**OF_RUNS, "engine": ""}
OF_PAIR = ("static", "capture_ids", "capture_default", "d2t", *DEFAULTS)


@dataclass(slots=True)
class Outcome:
    """What is known so far: it stays when a later check breaks off. ``judged`` says which arm or
    counters symptoms were read from, ``skipped`` what was not looked at, and why. ``parity``,
    ``step_costs`` and ``draft_spec`` are plain data; the last is None for files that the strict
    reader refuses."""

    found: list[Finding] = field(default_factory=list)
    judged: tuple[str, ...] = ()
    confirmed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    parity: list[dict[str, Any]] = field(default_factory=list)
    step_costs: dict[str, Any] | None = None
    draft_spec: dict[str, Any] | None = None


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Declare the flags that name a pair and how it is looked at; None or False if not given."""
    group = parser.add_argument_group("pair (no flag at all: the shipped demo pair)")
    group.add_argument("--target", metavar="DIR", help="target checkpoint")
    group.add_argument("--draft", metavar="DIR", help="EAGLE-3 draft checkpoint")
    group.add_argument("--static", action="store_true", help="configs and headers only; no torch")
    add_draft_flags(group)
    group.add_argument(
        "--propose-ids", metavar="K,K,K", help="physical layers to score beside the claimed ones"
    )
    group.add_argument("--engine", metavar="CODE==VERSION", help="judge layer ids for this engine")
    group.add_argument("--launch", metavar="ARGS", help="launch arguments of SGLang or vLLM")
    group.add_argument("--workload", metavar="NAME", help="text of the probe (default: default)")
    group.add_argument(
        "--requests",
        type=int,
        metavar="N",
        help="prompts of the probe (default: 36, and up to 108 where these do not decide)",
    )
    group.add_argument("--max-tokens", type=int, metavar="N", help="reply tokens each (default 32)")
    group.add_argument(
        "--parity",
        metavar="NAMES",
        help="parity probes of the engine: all (default), none, or names such as cache,tree",
    )
    group.add_argument(
        "--tensor-parallel",
        type=int,
        metavar="N",
        help="also hold an engine of N ranks against one",
    )


def launch_findings(text: str, arch: str) -> Sequence[Finding]:
    """Findings on launch arguments, for a target of class ``arch`` (empty: unknown)."""
    from specbench.doctor.checks_launch import check_launch, parse_launch

    return tuple(check_launch(parse_launch(text), arch))


def look_at_pair(args: argparse.Namespace, outcome: Outcome) -> None:
    """Static checks, then all that runs the models.

    Raises:
        UsageError: the pair cannot be read, or flags contradict each other.
    """
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
        as_default=bool(args.capture_default),
        d2t=args.d2t or OFFSETS,
        engine=args.engine,
    )
    outcome.found += static_findings(subject)
    outcome.draft_spec = read_spec(subject)
    if args.launch:
        outcome.found += launch_findings(args.launch, subject.arch)
    if args.static:
        outcome.skipped.append("Files alone were read; without --static the draft is scored, too.")
        return
    if has_error(outcome.found):
        outcome.skipped.append("The probe was left out: the files must be right first.")
        return
    if any(finding.code == "files.unsupported" for finding in outcome.found):
        outcome.skipped.append("The probe was left out: this engine does not run the pair.")
        return
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        outcome.skipped.append(
            "The probe was left out: it needs torch (pip install '.[engine]' in a clone)."
        )
        return
    _run_models(args, subject, outcome)


def read_spec(subject: Subject) -> dict[str, Any] | None:
    """What the strict reader understood of the draft, as results embed it."""
    from specbench.doctor.checks_subject import read_strictly
    from specbench.modelspec import as_record

    try:
        return as_record(read_strictly(subject))
    except CheckpointError:
        return None


def _run_models(args: argparse.Namespace, subject: Subject, outcome: Outcome) -> None:
    requests, reserve = _prompts(args)
    say = new_console(stderr=True)
    with say.status("scoring the draft under every wiring"):
        pair = _wiring(args, subject, requests, reserve, outcome)
    with say.status("holding two ways through the engine against each other"):
        _parity(args, subject, pair, requests, outcome)
    with say.status("timing plain and speculative steps in turn"):
        _costs(pair, requests, outcome)


def _prompts(args: argparse.Namespace) -> tuple[tuple[Request, ...], Reserve]:
    """What is asked first, and what more may be; a number that the user gave is kept to."""
    from specbench.doctor.wiring_more import FIRST_REQUESTS, MOST_REQUESTS, Reserve
    from specbench.request import SamplingParams
    from specbench.workload import load_workload

    until = time.perf_counter() + SECONDS
    sampling = SamplingParams(max_tokens=args.max_tokens)
    known = load_workload(args.workload).requests(args.requests, sampling)
    if args.requests is not None:
        return known, Reserve()
    further = known[FIRST_REQUESTS:MOST_REQUESTS]
    return known[:FIRST_REQUESTS], Reserve(requests=further, until=until)


def _wiring(
    args: argparse.Namespace,
    subject: Subject,
    requests: tuple[Request, ...],
    reserve: Reserve,
    outcome: Outcome,
) -> ModelPair:
    """The probe of the wiring; a draft of a kind that it does not read still runs."""
    from specbench.checkpoint.conventions import parse_ids
    from specbench.doctor.checks_wiring import CONFIG, load, probe_pair
    from specbench.engine.pair import ModelPair

    proposed = parse_ids(args.propose_ids or "", "--propose-ids") or None
    try:
        loaded = load(subject, requests, reserve=reserve)
    except CheckpointError as error:
        pair = ModelPair.load(
            subject.target.path,
            subject.draft.path,
            replace(CONFIG, d2t=subject.d2t),
            capture_ids=subject.given,
            capture_default=subject.as_default,
        )
        outcome.skipped.append(f"The wiring was not probed: {error}")
        return pair
    probed = probe_pair(subject, loaded, proposed=proposed)
    outcome.found += probed.findings
    outcome.confirmed += probed.confirmed
    return loaded.pair


def _parity(
    args: argparse.Namespace,
    subject: Subject,
    pair: ModelPair,
    requests: tuple[Request, ...],
    outcome: Outcome,
) -> None:
    names = parity_names(args.parity)
    if not names:
        return
    from specbench.doctor.parity import parity_findings
    from specbench.doctor.parity_setup import engines

    lead = _lead(args.tensor_parallel, subject, pair) if args.tensor_parallel > 1 else None
    try:
        report = parity_findings(pair, engines(pair), requests, names=names, ranks=lead)
    finally:
        if lead is not None:
            lead.close()
    outcome.found += report.findings
    outcome.confirmed += report.confirmed
    outcome.parity += _rows(report)


def parity_names(text: str) -> tuple[str, ...]:
    """What ``--parity`` asks for; empty for none.

    Raises:
        ConfigError: no such probe.
    """
    from specbench.doctor.parity_result import MODULES

    if text in (ALL, NONE):
        return tuple(MODULES) if text == ALL else ()
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        raise ConfigError(
            f"--parity {unknown[0]!r}.", expected=f"all, none, or of {', '.join(MODULES)}."
        )
    return names


def _lead(count: int, subject: Subject, pair: ModelPair) -> Any:
    """An engine of ``count`` ranks on the same folders."""
    from specbench.doctor.checks_wiring import CONFIG
    from specbench.engine.parallel_lead import Folders, lead_engine

    folders = Folders(
        target=subject.target.path,
        draft=subject.draft.path,
        capture_ids=subject.given,
        capture_default=subject.as_default,
    )
    config = replace(CONFIG, device=pair.device.type, tensor_parallel=count, d2t=subject.d2t)
    return lead_engine(folders, config, keep_hashes=True)


def _rows(report: ParityReport) -> list[dict[str, Any]]:
    return [
        asdict(result) | {"agrees": result.agrees, "first": result.first and asdict(result.first)}
        for result in report.results
    ]


def _costs(pair: ModelPair, requests: tuple[Request, ...], outcome: Outcome) -> None:
    from specbench.doctor.checks_wiring import STEPS
    from specbench.doctor.parity_setup import engines
    from specbench.doctor.step_costs import costs_finding, costs_line, measure_costs

    costs: StepCosts = measure_costs(pair, engines(pair), requests, num_steps=STEPS)
    outcome.step_costs = asdict(costs) | {"break_even": costs.break_even, "pays": costs.pays}
    slow = costs_finding(costs)
    if slow is None:
        outcome.confirmed.append(costs_line(costs))
    else:
        outcome.found.append(slow)
