"""The verdict on a wiring as a finding: who won, by how much, and the layer ids to write."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.checkpoint.conventions import IdRow, table
from specbench.doctor.findings import Fact, Figure, Finding, Severity
from specbench.doctor.wiring import Candidate, Verdict

_CODES = ("sglang", "vllm")
_WHERE = "probe on the target's own greedy text"


def finding_of(
    verdict: Verdict, *, layers: int, arch: str = "", ids: Sequence[int] = ()
) -> Finding:
    """A verdict in the doctor's terms: an error when a fault is declared, else a note.

    Args:
        verdict: of ``probe_wiring``.
        layers: decoder layers n of the target.
        arch: the target's class, where a code base counts differently for it.
        ids: layer ids as written in the draft's config; empty when it has none.
    """
    if verdict.winner is None:
        return _clean(verdict)
    winner, claimed = verdict.winner, verdict.claimed
    moved = winner.change.wiring.slots != claimed.change.wiring.slots
    physical = winner.change.wiring.slots
    facts = [_accuracy("The claim", claimed), _accuracy(winner.change.name, winner), _gain(winner)]
    facts += [
        Fact(text=f"One repair: {r.change.name}, {_points(r)}.", where=_WHERE)
        for r in verdict.repairs
        if len(verdict.repairs) > 1
    ]
    facts.append(Fact(text=verdict.unseen, where=_WHERE))
    if moved and ids:
        facts.append(_readers(ids, physical, layers, arch))
    return Finding(
        code=f"wiring.{winner.change.wire}",
        severity=Severity.ERROR,
        title=f"The draft guesses better with {winner.change.name} than as its files claim.",
        evidence=tuple(facts),
        remedy=_remedy(verdict, winner, layers, arch, moved),
        figures=_figures(verdict, winner),
        claims=f"physical layers {list(claimed.change.wiring.slots)}",
        score=min(1.0, max(0.5, 0.5 + winner.gain)),
    )


def _clean(verdict: Verdict) -> Finding:
    best = verdict.ranked[0] if verdict.ranked else None
    facts = [_accuracy("The claim", verdict.claimed)]
    if best is not None:
        facts.append(_accuracy(f"Best candidate: {best.change.name}", best))
    facts.append(Fact(text=verdict.unseen, where=_WHERE))
    ahead = best is not None and best.gain > 0
    title = (
        "No candidate beats the files' wiring by more than three standard errors."
        if ahead
        else "The files' wiring is not beaten by any candidate."
    )
    return Finding(
        code="wiring.claim",
        severity=Severity.NOTE,
        title=title,
        evidence=tuple(facts),
        figures=_figures(verdict, None),
        claims=f"physical layers {list(verdict.claimed.change.wiring.slots)}",
    )


def _figures(verdict: Verdict, winner: Candidate | None) -> dict[str, Figure]:
    figures: dict[str, Figure] = {
        "requests": verdict.requests,
        "positions": verdict.positions,
        "candidates": len(verdict.ranked),
        "claimed_step_1": verdict.claimed.first,
        "claimed_step_2": verdict.claimed.second,
    }
    if winner is not None:
        figures |= {
            "winner_step_1": winner.first,
            "winner_step_2": winner.second,
            "gain": winner.gain,
            "standard_error": winner.error,
        }
    return figures


def _accuracy(name: str, c: Candidate) -> Fact:
    text = f"{name}: {100 * c.first:.1f} % right at step 1, {100 * c.second:.1f} % at step 2."
    return Fact(text=text, where=_WHERE)


def _points(c: Candidate) -> str:
    return f"{100 * c.gain:+.1f} points (standard error {100 * c.error:.1f}, by request)"


def _gain(c: Candidate) -> Fact:
    return Fact(text=f"Mean of both steps against the claim: {_points(c)}.", where=_WHERE)


def _readers(ids: Sequence[int], physical: Sequence[int], layers: int, arch: str) -> Fact:
    """Which code bases take the written ids for the layers that won."""
    rows = _rows(ids, layers, arch, None)
    found = [f"{row.code} {row.versions}" for row in rows if row.meaning == tuple(physical)]
    who = ", ".join(found) or "no code base that is known here"
    return Fact(
        text=f"The written ids {list(ids)} mean layers {list(physical)} to: {who}.",
        where="checkpoint conventions",
    )


def _remedy(verdict: Verdict, winner: Candidate, layers: int, arch: str, moved: bool) -> str:
    changes = winner.change.wiring.changes(verdict.claimed.change.wiring)
    lines = [
        f"{name}: {old} should be {new}" for name, (old, new) in changes.items() if name != "slots"
    ]
    if moved:
        physical = winner.change.wiring.slots
        lines.append(f"capture physical layers {list(physical)}")
        rows = _rows((), layers, arch, physical)
        lines += [f"for {row.code} {row.versions} write {_written(row)}" for row in rows]
    return "; ".join(lines) + "."


def _rows(
    ids: Sequence[int], layers: int, arch: str, physical: Sequence[int] | None
) -> list[IdRow]:
    """The conventions' table; only SGLang and vLLM where ids are to be written."""
    codes = _CODES if physical is not None else ()
    return table(ids, layers=layers, arch=arch, physical=physical, codes=codes)


def _written(row: IdRow) -> str:
    return row.cannot if row.write is None else str(list(row.write))
