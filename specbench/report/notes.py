"""The report's closing sections: caveats, what did not run, reproduction."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from specbench.estimate import Severity
from specbench.grid import Dropped
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.advice import advice
from specbench.report.document import Block, Code, Folded, Heading, Items, Table, Text
from specbench.trace import Provenance

NOT_REACHED = "not measured: the run ended before it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A code of a caveat, its severity, where it applies and its sentences.

    The sentences are those of one point; ``where`` names it unless they are the same everywhere.
    """

    code: str
    severity: Severity
    where: str
    text: str


def caveats(summary: Summary) -> Iterable[Block]:
    """One item per code: where it applies, and its sentences in the first place."""
    yield Heading(text="Caveats")
    items = tuple(
        (one.code, f"{one.severity.value}, {one.where}: {_ended(one.text)}{_advised(one.code)}")
        for one in told(summary)
    )
    yield Items(items=items) if items else Text(text="None.")


def told(summary: Summary, most: int = 6) -> list[Told]:
    """Every code of the run once, in order of appearance; up to ``most`` places are named."""
    places: dict[str, dict[str, str]] = {}
    severities: dict[str, Severity] = {}
    for arm in summary.arms:
        facts: dict[str, dict[str, None]] = {}
        for caveat in arm.caveats:
            facts.setdefault(caveat.code, {})[caveat.text] = None
            severities.setdefault(caveat.code, caveat.severity)
        for code, its in facts.items():
            places.setdefault(code, {})[wording.place(arm, summary)] = "; ".join(its)
    found = []
    for code, texts in places.items():
        where = _everywhere(summary, set(texts))
        first, text = next(iter(texts.items()))
        if len(texts) > 1 and (not where or len(set(texts.values())) > 1):
            where = f"{where or _some(list(texts), most)}; on {first}"
        where = where or first
        found.append(Told(code=code, severity=severities[code], where=where, text=text))
    return found


def _everywhere(summary: Summary, places: Set[str]) -> str:
    """A word for ``places`` that are all there are, or all that speculate; else empty."""
    names = {wording.place(arm, summary): arm.spec.is_baseline for arm in summary.arms}
    if places == set(names):
        return "every point"
    if len(places) > 1 and places == {name for name, plain in names.items() if not plain}:
        return "every speculative point"
    return ""


def _advised(code: str) -> str:
    todo = advice(code)
    return f" To do: {todo}." if todo else ""


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _some(names: Sequence[str], most: int) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def not_run(summary: Summary, dropped: Sequence[Dropped]) -> Iterable[Block]:
    """Combinations that were dropped, and points that the run did not reach."""
    missing = _missing(summary)
    if not dropped and not summary.not_measured and not missing:
        return
    yield Heading(text="Points that did not run")
    items = [
        (f"{gone.num_steps}/{gone.topk}/{gone.num_draft_tokens}", gone.reason) for gone in dropped
    ]
    items += [(point, NOT_REACHED) for point in (*summary.not_measured, *missing)]
    yield Items(items=tuple(items))


def _missing(summary: Summary) -> list[str]:
    """Points of one cell that another lacks: an interrupted run ends within a cell."""
    every = {arm.key.point_id: wording.named(arm) for arm in summary.arms}
    cells = [best.cell for best in summary.bests]
    return [
        f"{name} at {wording.apart(cell, cells)}"
        for cell in cells
        for point, name in every.items()
        if point not in {arm.key.point_id for arm in summary.of_cell(cell)}
    ]


def elsewhere(command: Sequence[str]) -> list[str]:
    """``command`` with a folder of its own: the one it had holds this run, and is refused.

    >>> elsewhere(["specbench", "sweep", "--out", "runs/a", "--resume"])
    ['specbench', 'sweep', '--out', 'runs/a-again']
    """
    kept = [word for word in command if word != "--resume"]
    for index, word in enumerate(kept):
        if word.startswith("--out=") or (index and kept[index - 1] == "--out"):
            kept[index] = f"{word.rstrip('/')}-again"
    return kept


def reproduction(provenance: Provenance) -> Iterable[Block]:
    """The command, and the facts that have to be the same for it to give the same."""
    yield Heading(text="How to reproduce")
    yield Code(text=shlex.join(elsewhere(provenance.command)))
    facts = [
        (topic, name, value)
        for topic, values in (
            ("software", provenance.software),
            ("machine", provenance.machine),
            ("device", provenance.device),
            ("inputs", provenance.inputs),
        )
        for name, value in values.items()
    ]
    facts.insert(0, ("run", "started at", provenance.started_at))
    yield Folded(
        title="Software, machine, device and inputs of the run",
        inside=Table(
            columns=("topic", "fact", "value"), rows=tuple(facts), words=("topic", "fact", "value")
        ),
    )
