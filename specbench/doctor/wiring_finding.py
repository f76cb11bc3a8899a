"""The verdict on a wiring as a finding: who won, by how much, and the layer ids to write."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specbench.checkpoint.conventions import IdRow, table
from specbench.doctor.findings import Fact, Figure, Finding, Severity, evidence_score
from specbench.doctor.wiring import Candidate, Verdict

_CODES = ("sglang", "vllm")
MOST_OTHERS = 2
_IN_WEIGHTS = {  # wires that no key of a config names: what to do to the tensors
    "token_first": "swap the two halves of the columns of q_proj, k_proj and v_proj, since engines "
    "join the token's embedding first",
    "adjacent": "reorder the rows of q_proj and k_proj by head from pairs side by side to pairs "
    "half a head apart, as engines rotate them: a conversion was left out or made twice",
}
_WHERE = "probe on the target's own greedy text"


def findings_of(
    verdict: Verdict, *, layers: int, arch: str = "", ids: Sequence[int] = ()
) -> tuple[Finding, ...]:
    """A verdict in the doctor's terms: an error for each wire to repair, else one note.

    Each score says which part of the gain of all repairs together its repair makes, and how sure
    that is. What gains on the claim as well but is not part of the repair is a warning.

    Args:
        verdict: of ``probe_wiring``.
        layers: decoder layers n of the target.
        arch: the target's class, where a code base counts differently for it.
        ids: layer ids as written in the draft's config; empty when it has none.
    """
    if verdict.winner is None:
        return (_clean(verdict),)
    first = _first(verdict, verdict.winner, layers, arch, ids)
    more = [_further(verdict, verdict.winner, r) for r in verdict.repairs[1:]]
    return (first, *more, *_others(verdict, verdict.winner))


def _first(
    verdict: Verdict, winner: Candidate, layers: int, arch: str, ids: Sequence[int]
) -> Finding:
    """The repair that gains most, with all that must be changed."""
    claimed, repair = verdict.claimed, verdict.repairs[0]
    moved = winner.change.wiring.slots != claimed.change.wiring.slots
    facts = [_accuracy("The claim", claimed), _accuracy(winner.change.name, winner), _gain(winner)]
    facts += [
        Fact(text=f"One repair: {r.change.name}, {_points(r)}.", where=_WHERE)
        for r in verdict.repairs
        if len(verdict.repairs) > 1
    ]
    facts.append(Fact(text=verdict.unseen, where=_WHERE))
    if moved and ids:
        facts.append(_readers(ids, winner.change.wiring.slots, layers, arch))
    return Finding(
        code=f"wiring.{repair.change.wire}",
        severity=Severity.ERROR,
        title=f"The draft guesses better with {winner.change.name} than as its files claim.",
        evidence=tuple(facts),
        remedy=_remedy(verdict, winner, layers, arch, moved),
        figures=_figures(verdict, winner) | {"explained": _part(repair, winner)},
        claims=f"physical layers {list(claimed.change.wiring.slots)}",
        score=_score(repair, winner),
    )


def _further(verdict: Verdict, winner: Candidate, repair: Candidate) -> Finding:
    return Finding(
        code=f"wiring.{repair.change.wire}",
        severity=Severity.ERROR,
        title=f"A second wire: {repair.change.name} gains on top, {_points(repair)}.",
        evidence=(_accuracy("With it", repair), Fact(text=verdict.unseen, where=_WHERE)),
        remedy=f"See wiring.{verdict.repairs[0].change.wire}, which lists all changes.",
        figures={
            "gain": repair.gain,
            "standard_error": repair.error,
            "explained": _part(repair, winner),
        },
        score=_score(repair, winner),
    )


def _others(verdict: Verdict, winner: Candidate) -> list[Finding]:
    """The best of every other wire that beats the claim, and is no part of the repair."""
    taken = {r.change.wire for r in verdict.repairs}
    found: list[Finding] = []
    for c in sorted((c for c in verdict.ranked if c.better), key=lambda c: -c.gain):
        if c.change.wire in taken or len(found) == MOST_OTHERS:
            continue
        taken.add(c.change.wire)
        found.append(
            Finding(
                code=f"wiring.{c.change.wire}",
                severity=Severity.WARNING,
                title=f"Better than the claim, too, but less so: {c.change.name}, {_points(c)}.",
                evidence=(_accuracy(c.change.name, c), _accuracy(winner.change.name, winner)),
                remedy="Repair the wire that gains most first, and look again.",
                figures={
                    "gain": c.gain,
                    "standard_error": c.error,
                    "explained": _part(c, winner),
                },
                score=_score(c, winner),
            )
        )
    return found


def _part(repair: Candidate, winner: Candidate) -> float:
    """The part of what all repairs gain that this one does."""
    return repair.gain / winner.gain if winner.gain > 0 else 0.0


def _score(repair: Candidate, winner: Candidate) -> float:
    z = math.inf if repair.z is None else repair.z
    return evidence_score(_part(repair, winner), z)


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
    text = verdict.look or verdict
    figures: dict[str, Figure] = {
        "requests": text.requests,
        "positions": text.positions,
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
        _IN_WEIGHTS.get(name, f"{name}: {old} should be {new}")
        for name, (old, new) in changes.items()
        if name != "slots"
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
