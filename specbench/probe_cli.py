"""``specbench probe``: accuracy, survival and accept length of a draft, side by side."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from specbench import demo
from specbench.config import EngineConfig
from specbench.errors import ConfigError
from specbench.journal import write_atomically
from specbench.metrics.stats import Interval, log_linear
from specbench.request import SamplingParams
from specbench.workload import load_workload

if TYPE_CHECKING:
    from specbench.engine.probe import ReplySums

_MEANING = """\
known: the first choice is the target's best token among those the draft knows; true tokens \
are fed in, as a draft's training reports it.
all: the same over the target's whole vocabulary, so a token the draft cannot say is a miss.
survival: steps 1..k of a chain fed its own tokens are all right; 1 + its sum is the implied length.
walk: accept length of the verify steps that a server makes; it starts where the last step ended.
Intervals are 95 %, clustered by request; none stands where requests are too few."""


def add_parser(subparsers: Any) -> None:
    """Declare ``probe``."""
    parser = subparsers.add_parser(
        "probe",
        help="a draft's accuracy, survival and accept length on the target's own text",
        description="Score a draft at every position of the target's own greedy replies. Needs no "
        "server and times nothing.",
        allow_abbrev=False,
    )
    parser.add_argument("--target", default=str(demo.TARGET), metavar="DIR", help="target folder")
    parser.add_argument("--draft", default=str(demo.DRAFT), metavar="DIR", help="draft folder")
    parser.add_argument("--workload", default="default", metavar="NAME", help="prompts")
    parser.add_argument("--requests", type=int, default=30, metavar="N", help="most requests")
    parser.add_argument("--max-tokens", type=int, default=48, metavar="N", help="tokens a reply")
    parser.add_argument("--num-steps", type=int, default=5, metavar="K", help="draft steps")
    parser.add_argument(
        "--positions", type=int, default=20_000, metavar="N", help="most positions to score"
    )
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "float64"),
        help="exact figures need 32 bits or more",
    )
    parser.add_argument("--json", default="", metavar="FILE", help="also write the figures there")
    parser.set_defaults(run=_probe)


def _probe(args: argparse.Namespace) -> int:
    for flag in ("requests", "max_tokens", "num_steps", "positions"):
        if getattr(args, flag) < 1:
            raise ConfigError(
                f"--{flag.replace('_', '-')} {getattr(args, flag)}.", expected="1 or more."
            )
    facts = measured(args)
    if args.json:
        write_atomically(Path(args.json), json.dumps(facts, indent=2) + "\n")
    _show(facts)
    return 0


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """The figures as plain data, ``all`` first, then every category."""
    from specbench.engine.pair import ModelPair
    from specbench.engine.probe import probe
    from specbench.engine.probe_draft import ProbeDraft

    config = EngineConfig(dtype=args.dtype, kernels="torch")
    pair = ModelPair.load(args.target, args.draft, config)
    sampling = SamplingParams(max_tokens=args.max_tokens)
    requests = load_workload(args.workload).requests(args.requests, sampling)
    result = probe(
        pair,
        ProbeDraft.load(pair, args.draft),
        requests,
        steps=args.num_steps,
        positions=args.positions,
    )
    groups = {"all": list(result.replies)}
    for name in result.categories():
        groups[name or "(none)"] = [r for r in result.replies if r.category == name]
    return {
        "target": args.target,
        "draft": args.draft,
        "workload": args.workload,
        "dtype": args.dtype,
        "num_steps": result.steps,
        "capture_layers": list(result.layers),
        "requests": len(result.replies),
        "requests_left_out": result.left_out,
        "positions": result.positions,
        "groups": {name: group_figures(replies) for name, replies in groups.items()},
    }


def group_figures(replies: Sequence[ReplySums]) -> dict[str, Any]:
    """Figures of some replies, each with value, low and high."""
    starts = np.array([r.positions for r in replies], dtype=np.float64)
    implied = np.array([r.positions + sum(r.alive) for r in replies], dtype=np.float64)
    steps = np.array([r.verify_steps for r in replies], dtype=np.float64)
    made = np.array([r.verify_steps + r.accepted for r in replies], dtype=np.float64)
    by_step = {
        name: [_share(column, starts) for column in np.array(sums, dtype=np.float64).T]
        for name, sums in (
            ("accuracy_known", [r.known for r in replies]),
            ("accuracy_all", [r.hits for r in replies]),
            ("survival", [r.alive for r in replies]),
        )
    }
    return {
        "requests": len(replies),
        "positions": int(starts.sum()),
        "verify_steps": int(steps.sum()),
        **by_step,
        "implied_accept_length": _ratio(implied, starts),
        "walk_accept_length": _ratio(made, steps),
    }


def _share(above: Any, below: Any) -> dict[str, float | None]:
    """As ``_ratio`` of a part and its whole: the interval of the logarithm is cut at 1."""
    found = _ratio(above, below)
    high = found["high"]
    return found if high is None else {**found, "high": min(high, 1.0)}


def _ratio(above: Any, below: Any) -> dict[str, float | None]:
    """A ratio of sums with its interval; a numerator of none is 0 without an interval."""
    found = log_linear(np.stack([above, below], 1), (1, -1))
    if found is None:
        found = Interval(value=0.0, low=None, high=None, n=len(below))
    return {"value": found.value, "low": found.low, "high": found.high}


def _show(facts: dict[str, Any]) -> None:
    out = Console(highlight=False)
    left = facts["requests_left_out"]
    more = f", {left} left out by --positions" if left else ""
    out.print(
        f"{facts['positions']} positions of {facts['requests']} requests{more}; "
        f"capture layers {facts['capture_layers']} (physical), {facts['dtype']}",
        markup=False,
    )
    table = Table(box=None, pad_edge=False)
    for name in ("category", "n", "step", "known", "all", "survival"):
        table.add_column(name, justify="left" if name == "category" else "right", no_wrap=True)
    lengths = Table(box=None, pad_edge=False)
    for name in ("category", "positions", "verify steps", "implied length", "walk"):
        lengths.add_column(name, justify="left" if name == "category" else "right", no_wrap=True)
    for name, group in facts["groups"].items():
        columns = [group[c] for c in ("accuracy_known", "accuracy_all", "survival")]
        for k, cells in enumerate(zip(*columns, strict=True)):
            head = [name, str(group["requests"])] if k == 0 else ["", ""]
            table.add_row(*head, str(k + 1), *(_cell(c, 100, 1) for c in cells))
        lengths.add_row(
            name,
            str(group["positions"]),
            str(group["verify_steps"]),
            _cell(group["implied_accept_length"], 1, 2),
            _cell(group["walk_accept_length"], 1, 2),
        )
    for part in ("Percent of positions", table, "", "Accept length", lengths, "", _MEANING):
        out.print(part)


def _cell(found: dict[str, float | None], scale: float, digits: int) -> str:
    value, low, high = (found[name] for name in ("value", "low", "high"))
    shown = f"{scale * value:.{digits}f}" if value is not None else "-"
    if low is None or high is None:
        return shown
    return f"{shown} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"
