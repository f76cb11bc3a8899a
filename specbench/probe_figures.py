"""The probe's sums as figures with intervals, as plain data and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from specbench.metrics.stats import Interval, log_linear
from specbench.screen import new_console

if TYPE_CHECKING:
    from specbench.engine.probe import ProbeResult
    from specbench.engine.probe_sums import ReplySums

Figure = dict[str, float | None]
_NONE: Figure = {"value": None, "low": None, "high": None}
_MEANING = """\
known: the first choice is the target's best token among those the draft knows; true tokens \
are fed in, as a draft's training reports it.
all: the same over the target's whole vocabulary, so a token the draft cannot say is a miss.
survival: steps 1..k of a chain fed its own tokens are all right; 1 + its sum is the implied length.
tree: levels 1..k of the tree that the engine would draft there hold the target's tokens.
walk, tree walk: accept length of the verify steps that a server makes with the chain and with the \
tree; each starts where the last step ended.
Intervals are 95 %, clustered by request; none stands where requests are too few."""


def all_figures(result: ProbeResult) -> dict[str, Any]:
    """The figures of a probe as plain data: ``all`` first, then every category."""
    groups = {"all": list(result.replies)}
    for name in result.categories():
        if result.own_text:
            groups[name or "(none)"] = [r for r in result.replies if r.category == name]
    return {
        "num_steps": result.steps,
        "tree": None if result.tree is None else result.tree.point_id,
        "capture_layers": list(result.layers),
        "requests": len(result.replies),
        "requests_left_out": result.left_out,
        "positions": result.positions,
        "own_text": result.own_text,
        "notes": list(result.notes),
        "groups": {
            name: group_figures(replies, own_text=result.own_text)
            for name, replies in groups.items()
        },
    }


def group_figures(replies: Sequence[ReplySums], *, own_text: bool = True) -> dict[str, Any]:
    """Figures of some replies, each with value, low and high; null where there is none.

    In text that is not the target's own, survival counts the starts that can be judged, which
    differ from step to step: there is no implied length and no walk.
    """
    positions = _column([r.positions for r in replies])
    starts = np.array([r.starts for r in replies], dtype=np.float64)
    implied = _column([r.positions + sum(r.alive) for r in replies])
    grown = any(r.tree for r in replies)
    return {
        "requests": len(replies),
        "positions": int(positions.sum()),
        "starts": [int(count) for count in starts.sum(0)],
        "verify_steps": sum(r.verify_steps for r in replies),
        "tree_verify_steps": sum(r.tree_steps for r in replies),
        "accuracy_known": _by_step([r.known for r in replies], positions[:, None]),
        "accuracy_all": _by_step([r.hits for r in replies], positions[:, None]),
        "survival": _by_step([r.alive for r in replies], starts),
        "tree_match": _by_step([r.tree for r in replies], starts) if grown else [],
        "implied_accept_length": _ratio(implied, positions) if own_text else _NONE,
        "walk_accept_length": _length([(r.verify_steps, r.accepted) for r in replies]),
        "tree_walk_accept_length": _length([(r.tree_steps, r.tree_accepted) for r in replies]),
    }


def _column(values: Sequence[int]) -> Any:
    return np.array(values, dtype=np.float64)


def _by_step(sums: Sequence[Sequence[int]], wholes: Any) -> list[Figure]:
    parts = np.array(sums, dtype=np.float64)
    wholes = np.broadcast_to(wholes, parts.shape)
    return [_share(part, whole) for part, whole in zip(parts.T, wholes.T, strict=True)]


def _length(walks: Sequence[tuple[int, int]]) -> Figure:
    """Accept length of (verify steps, drafts accepted) of each reply."""
    steps = _column([made for made, _ in walks])
    return _ratio(_column([made + accepted for made, accepted in walks]), steps)


def _share(above: Any, below: Any) -> Figure:
    """As ``_ratio`` of a part and its whole: the interval of the logarithm is cut at 1."""
    found = _ratio(above, below)
    high = found["high"]
    return found if high is None else {**found, "high": min(high, 1.0)}


def _ratio(above: Any, below: Any) -> Figure:
    """A ratio of sums with its interval; of nothing to nothing it is none, of nothing 0."""
    if not below.sum():
        return _NONE
    found = log_linear(np.stack([above, below], 1), (1, -1))
    if found is None:
        found = Interval(value=0.0, low=None, high=None, n=len(below))
    return {"value": found.value, "low": found.low, "high": found.high}


def show_figures(facts: dict[str, Any]) -> None:
    """Print the tables of ``all_figures`` and of what was measured."""
    out = new_console()
    left = facts["requests_left_out"]
    more = f", {left} left out by --positions or --requests" if left else ""
    out.print(
        f"{facts['positions']} positions of {facts['requests']} requests{more}; "
        f"capture layers {facts['capture_layers']} (physical), {facts['dtype']}",
        markup=False,
    )
    for note in facts["notes"]:
        out.print(f"- {note}.", markup=False)
    for part in ("Percent of positions", _steps_table(facts), "", "Accept length"):
        out.print(part)
    for part in (_lengths_table(facts), "", _MEANING):
        out.print(part)


def _steps_table(facts: dict[str, Any]) -> Table:
    names = ["category", "n", "step", "known", "all", "survival"]
    columns = ["accuracy_known", "accuracy_all", "survival"]
    if facts["tree"]:
        names.append(f"tree {facts['tree']}")
        columns.append("tree_match")
    table = _table(names)
    for name, group in facts["groups"].items():
        for k, cells in enumerate(zip(*(group[c] for c in columns), strict=True)):
            head = [name, str(group["requests"])] if k == 0 else ["", ""]
            table.add_row(*head, str(k + 1), *(_cell(c, 100, 1) for c in cells))
    return table


def _lengths_table(facts: dict[str, Any]) -> Table:
    names = ["category", "positions", "verify steps", "implied length", "walk"]
    columns = ["implied_accept_length", "walk_accept_length"]
    if facts["tree"]:
        names += ["tree steps", "tree walk"]
    table = _table(names)
    for name, group in facts["groups"].items():
        cells = [name, str(group["positions"]), str(group["verify_steps"])]
        cells += [_cell(group[column], 1, 2) for column in columns]
        if facts["tree"]:
            tree = _cell(group["tree_walk_accept_length"], 1, 2)
            cells += [str(group["tree_verify_steps"]), tree]
        table.add_row(*cells)
    return table


def _table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name == "category" else "right", no_wrap=True)
    return table


def _cell(found: Figure, scale: float, digits: int) -> str:
    value, low, high = (found[name] for name in ("value", "low", "high"))
    shown = f"{scale * value:.{digits}f}" if value is not None else "-"
    if low is None or high is None:
        return shown
    return f"{shown} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"
