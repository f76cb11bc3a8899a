"""``specbench doctor gap``: what accept length a training accuracy implies, and where it went."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console

from specbench.errors import ConfigError

_SHARES = {
    "restricted": "offline accuracy within the draft's vocabulary, on the target's own text",
    "full": "the same over all tokens",
    "template": "--full with the training template",
    "unknown": "share of the target's tokens outside the draft's vocabulary",
    "engine": "served share of steps whose first draft was accepted",
}


def add_parser(subparsers: Any) -> None:
    """Declare ``gap`` beside the doctor's other actions."""
    parser = subparsers.add_parser(
        "gap",
        help="from a training accuracy to accept length, and where the difference goes",
        description="A training accuracy and a served accept length count different things. What "
        "is not given is said to be unknown.",
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
    for name, about in _SHARES.items():
        parser.add_argument(f"--{name}", type=float, metavar="S", help=about)
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    parser.set_defaults(run=_gap)


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


def _gap(args: argparse.Namespace) -> int:
    from specbench.doctor.findings import to_json
    from specbench.doctor.gap import FRAMEWORKS, Measured, gap_finding, split_gap

    for name in _SHARES:
        value = getattr(args, name)
        if value is not None and not 0 <= value <= 1:
            raise ConfigError(f"--{name} {value}.", expected="A share from 0 to 1.")
    accuracies = numbers(args.train_accuracy, "--train-accuracy")
    framework = FRAMEWORKS[args.framework]
    measured = Measured(**{name: getattr(args, name) for name in _SHARES})
    gap = split_gap(accuracies, framework, args.num_steps, measured, args.accept_length)
    finding = gap_finding(gap, framework, accuracies)
    console = Console(highlight=False, soft_wrap=args.json)
    if args.json:
        console.print(json.dumps(to_json(finding), indent=2, allow_nan=False), markup=False)
        return 0
    console.print(finding.title, style="bold", markup=False)
    if gap.total is not None:
        console.print(
            f"First position: training minus served {100 * gap.total:+.1f} points, of which"
        )
    for term in gap.terms:
        points = "not measured" if term.points is None else f"{100 * term.points:+.1f}"
        console.print(f"  {term.name:<18} {points:>12}  {term.why}", markup=False)
    if finding.remedy:
        console.print(finding.remedy, style="dim", markup=False)
    return 0
