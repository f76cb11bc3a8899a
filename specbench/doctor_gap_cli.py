"""``specbench doctor gap``: what accept length a training accuracy implies, and where it went."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.draft_flags import OFFSETS, add_draft_flags
from specbench.errors import ConfigError
from specbench.screen import new_console

if TYPE_CHECKING:
    from rich.console import Console

    from specbench.doctor.gap import Framework, Gap
    from specbench.doctor.gap_probe import GapProbe

DEFAULTS = {"workload": "default", "requests": 36, "max_tokens": 32}
_OF_PAIR = ("capture_ids", "capture_default", "d2t", *DEFAULTS, "train_data", "train_template")
_SHARES = {
    "restricted": "offline accuracy within the draft's vocabulary, on the target's own text",
    "full": "the same over all tokens",
    "template": "--full with the training template",
    "unknown": "share of the target's tokens outside the draft's vocabulary",
    "engine": "served share of steps whose first draft was accepted",
    "off-policy": "accuracy by the framework's definition on training data",
    "at-steps": "--full where steps begin",
}


def add_parser(subparsers: Any) -> None:
    """Declare ``gap`` beside the doctor's other actions."""
    parser = subparsers.add_parser(
        "gap",
        help="from a training accuracy to accept length, and where the difference goes",
        description="A training accuracy and a served accept length count different things. With "
        "--target and --draft the parts are measured; what nobody measured is said to be unknown.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--train-accuracy", required=True, metavar="A,A,...", help="one, or one per step, in 0..1"
    )
    parser.add_argument(
        "--framework",
        required=True,
        choices=("eagle", "specforge", "speculators", "speculators-cond"),
        help="whose definition it is",
    )
    parser.add_argument("--num-steps", type=int, default=3, metavar="K", help="default 3")
    parser.add_argument("--accept-length", type=float, metavar="X", help="measured, bonus counted")
    _add_pair(parser)
    known = parser.add_argument_group("known figures (they win over what is measured)")
    for name, about in _SHARES.items():
        known.add_argument(f"--{name}", type=float, metavar="S", help=about)
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    parser.set_defaults(run=_gap)


def _add_pair(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("measure the parts on a pair")
    group.add_argument("--target", metavar="DIR", help="target checkpoint")
    group.add_argument("--draft", metavar="DIR", help="EAGLE-3 draft checkpoint")
    add_draft_flags(group)
    group.add_argument("--workload", metavar="NAME", help="prompts (default: default)")
    for name, about in (("requests", "how many of them"), ("max_tokens", "reply tokens each")):
        told = f"{about} (default {DEFAULTS[name]})"
        group.add_argument(flag(name), type=int, metavar="N", help=told)
    group.add_argument("--train-data", metavar="FILE", help="training records with their replies")
    group.add_argument(
        "--train-template",
        metavar="FILE",
        help="chat template of training (default: the draft folder's own, where it differs)",
    )


def numbers(text: str | None, flag: str) -> tuple[float, ...]:
    """0.6,0.3 as numbers; None is none.

    Raises:
        ConfigError: anything else, named by ``flag``.
    """
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"{flag} {text!r}.", expected="Numbers such as 0.6,0.3.") from error


def flag(name: str) -> str:
    """As it is typed: max_tokens is --max-tokens, run_dir is --run."""
    return f"--{name.removesuffix('_dir').replace('_', '-')}"


def given(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that were given, as flags; a flag's default is None, False or []."""
    values = ((name, getattr(args, name)) for name in names)
    return [flag(n) for n, v in values if v is not None and v is not False and v != []]


def refuse_ignored(args: argparse.Namespace, names: Iterable[str], where: str, todo: str) -> None:
    """Refuse those of ``names`` that were given, as they would do nothing.

    Raises:
        ConfigError: names them, ``where`` they mean nothing, and what to do.
    """
    if found := given(args, names):
        raise ConfigError(f"{', '.join(found)}: has no meaning {where}.", todo=todo)


def refuse_empty(args: argparse.Namespace) -> None:
    """Refuse a flag with an empty text, such as a shell's variable that is not set.

    Raises:
        ConfigError: names it.
    """
    for name, value in vars(args).items():
        if value == "":
            raise ConfigError(f"{flag(name)} is empty.", todo="Give a value, or leave it out.")


def _gap(args: argparse.Namespace) -> int:
    from specbench.doctor.findings import to_json
    from specbench.doctor.gap import FRAMEWORKS, Measured, implied_length, split_gap
    from specbench.doctor.gap_finding import gap_finding

    refuse_empty(args)
    shares = _shares(args)
    accuracies = numbers(args.train_accuracy, "--train-accuracy")
    framework = FRAMEWORKS[args.framework]
    if not framework.ignores_unknown:
        where = f"with {args.framework}, where a token that the draft lacks counts as wrong"
        refuse_ignored(args, ("restricted", "unknown"), where, "Leave it out, or give --full.")
    implied_length(accuracies, framework, args.num_steps)  # refuses them before anything is run
    probed = _measure(args, framework)
    figures = {} if probed is None else _figures(probed)
    served = args.accept_length
    if served is None and probed is not None and "engine" not in shares:
        served = probed.accept_length
    elif served is not None and "engine" not in shares:
        figures.pop("engine", None)  # that accept length is another engine's
    measured = Measured(**(figures | shares))
    gap = split_gap(accuracies, framework, args.num_steps, measured, served)
    finding = gap_finding(gap, framework, accuracies)
    console = new_console(soft_wrap=args.json)
    told = () if probed is None else probed.told
    notes = _notes(accuracies, args.num_steps)
    if args.json:
        table = to_json(finding) | {"measured_on": list(told), "notes": notes}
        console.print(json.dumps(table, indent=2, allow_nan=False), markup=False)
        return 0
    console.print(finding.title, style="bold", markup=False)
    for line in (*notes, *(f"Measured on {each}." for each in told)):
        console.print(line, style="dim", markup=False)
    _show_parts(console, gap)
    if finding.remedy:
        console.print(finding.remedy, style="dim", markup=False)
    return 0


def _notes(accuracies: Sequence[float], num_steps: int) -> list[str]:
    """What of the accuracies is not used: one alone stands for every step."""
    further = len(accuracies) - num_steps
    if len(accuracies) == 1 or further <= 0:
        return []
    return [f"Accuracies of {further} further steps were not used: --num-steps {num_steps}."]


def _show_parts(console: Console, gap: Gap) -> None:
    from specbench.doctor.gap_finding import inferred

    if gap.total is not None:
        told = f" ({inferred(gap)})" if gap.inferred is not None else ""
        console.print(
            f"First position: training minus served {100 * gap.total:+.1f} points{told}, of which",
            markup=False,
        )
    for term in gap.terms:
        points = "not measured" if term.points is None else f"{100 * term.points:+.1f}"
        console.print(f"  {term.name:<18} {points:>12}  {term.why}", markup=False)


def _shares(args: argparse.Namespace) -> dict[str, float]:
    """The known figures that were given."""
    known = {}
    for name in _SHARES:
        value = getattr(args, name.replace("-", "_"))
        if value is not None and not 0 <= value <= 1:
            raise ConfigError(f"--{name} {value}.", expected="A share from 0 to 1.")
        if value is not None:
            known[name.replace("-", "_")] = value
    return known


def _figures(probed: GapProbe) -> dict[str, float | None]:
    from dataclasses import asdict

    return asdict(probed.measured)


def _measure(args: argparse.Namespace, framework: Framework) -> GapProbe | None:
    """What the pair tells; None without one."""
    if bool(args.target) != bool(args.draft):
        raise ConfigError("--target and --draft go together.", todo="Give both, or neither.")
    if not args.target:
        refuse_ignored(
            args, _OF_PAIR, "without a pair", "Add --target and --draft, or leave it out."
        )
        return None
    if args.capture_ids and args.capture_default:
        raise ConfigError("--capture-ids and --capture-default are both given.", todo="Drop one.")
    for name, default in DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    for name, least in (("requests", 1), ("max_tokens", 3)):
        if getattr(args, name) < least:
            raise ConfigError(f"{flag(name)} {getattr(args, name)}.", expected=f"At least {least}.")
    from specbench.checkpoint.conventions import parse_ids
    from specbench.doctor.gap_data import read_replies
    from specbench.doctor.gap_probe import GapPair, measure_gap, shipped_template
    from specbench.request import SamplingParams
    from specbench.workload import load_workload

    training = read_replies(Path(args.train_data), args.requests) if args.train_data else ()
    sampling = SamplingParams(max_tokens=args.max_tokens)
    requests = load_workload(args.workload).requests(args.requests, sampling)
    target, draft = Path(args.target), Path(args.draft)
    template = Path(args.train_template) if args.train_template else shipped_template(target, draft)
    ids = parse_ids(args.capture_ids or "", "--capture-ids") or None
    with new_console(stderr=True).status("scoring the draft by each definition"):
        loaded = GapPair.load(
            target, draft, ids, capture_default=bool(args.capture_default), d2t=args.d2t or OFFSETS
        )
        return measure_gap(
            loaded,
            requests,
            framework,
            num_steps=args.num_steps,
            training=training,
            template=template,
        )
