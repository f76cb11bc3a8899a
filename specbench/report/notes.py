"""The report's closing sections: caveats, what did not run, reproduction."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from specbench.grid import Dropped
from specbench.metrics.figures import ArmResult
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.advice import advice
from specbench.report.document import Block, Code, Heading, Items, Table, Text
from specbench.trace import Provenance


def caveats(summary: Summary) -> Iterable[Block]:
    """One item per code: where it applies, and its sentences in the first place."""
    places: dict[str, list[str]] = {}
    texts: dict[str, tuple[str, str]] = {}
    for arm in summary.arms:
        for code, (severity, text) in _told(arm).items():
            places.setdefault(code, []).append(wording.place(arm, summary))
            texts.setdefault(code, (severity, text))
    yield Heading(text="Caveats")
    if not places:
        yield Text(text="None.")
        return
    items = []
    for code, points in places.items():
        severity, text = texts[code]
        unique = list(dict.fromkeys(points))
        where = "every point" if len(unique) == len(summary.arms) else _some(unique)
        for_example = f"; on {unique[0]}: " if len(unique) > 1 and where != "every point" else ": "
        items.append((code, f"{severity}, {where}{for_example}{text}.{_advised(code)}"))
    yield Items(items=tuple(items))


def _told(arm: ArmResult) -> dict[str, tuple[str, str]]:
    """Severity and sentences of each code of one arm: a code may stand for several facts."""
    found: dict[str, dict[str, str]] = {}
    for caveat in arm.caveats:
        found.setdefault(caveat.code, {})[caveat.text] = caveat.severity.value
    return {code: (next(iter(its.values())), "; ".join(its)) for code, its in found.items()}


def _advised(code: str) -> str:
    todo = advice(code)
    return f" To do: {todo}." if todo else ""


def _some(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def not_run(summary: Summary, dropped: Sequence[Dropped]) -> Iterable[Block]:
    """Combinations that were dropped, and points that the run did not reach."""
    if not dropped and not summary.not_measured:
        return
    yield Heading(text="Points that did not run")
    items = [
        (f"{gone.num_steps}/{gone.topk}/{gone.num_draft_tokens}", gone.reason) for gone in dropped
    ]
    items += [(point, "not measured: the run ended before it") for point in summary.not_measured]
    yield Items(items=tuple(items))


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
    yield Table(
        columns=("topic", "fact", "value"), rows=tuple(facts), words=("topic", "fact", "value")
    )
