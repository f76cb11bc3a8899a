"""An engine that does not run what the files claim, as a finding that names the wire.

The one wiring whose steps equal the engine's names it exactly; else the rows that its draft was fed
do; else how its draft ids became tokens, or where in the text it goes wrong. What is left is the
draft's own arithmetic: weights, cache, kernels (engine-spec 10.3, step 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specbench.doctor.findings import Fact, Finding, Severity, evidence_score
from specbench.doctor.wiring_candidates import Change
from specbench.doctor.wiring_rows import Rows
from specbench.doctor.wiring_served import Served
from specbench.engine.wiring import Wiring

NAMED = 0.98
MOST_OF_IT = 0.9
STALE = 0.5
MAPS = {
    "direct_map": "d2t is read as target ids, not as offsets",
    "zero_map": "d2t is taken as all zeros: draft ids are used as target ids",
}
PARTLY = {
    "empty": ("features_lost", "features do not arrive"),
    "scaled": ("features_scaled", "features are a fixed part of what they should be: partial sums"),
    "clipped": ("features_clipped", "features are clipped: a narrow dtype"),
    "rounded": ("features_rounded", "features are rounded: a narrow dtype"),
    "moved": ("pairing", "features belong to another row than their token"),
    "stale": ("features_stale", "features of an earlier step: a buffer that is not refilled"),
    "shuffled": ("features_shuffled", "features of other rows"),
    "normed": ("tap", "streams are taken after a norm"),
    "mlp": ("tap", "streams are taken without the residual"),
    "unknown": ("features_unknown", "features are no stream of the target"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The wire that differs, in words, and the part of the engine's odd steps that it explains."""

    wire: str
    told: str
    explained: float


def engine_findings(served: Served, claimed: Wiring) -> Iterator[Finding]:
    """The engine's steps against those of the files: one finding when they differ."""
    if served.agrees:
        return
    named = name_engine(served, claimed)
    yield Finding(
        code=f"engine.{named.wire}",
        severity=Severity.ERROR,
        title=f"The engine does not run what the files claim: {named.told}",
        evidence=(
            Fact(
                text=f"{100 * served.agreement:.1f} % of {served.steps} steps as claimed; first "
                f"steps {100 * served.first:.1f} %, later {100 * served.later:.1f} %",
                where="engine against probe",
            ),
            *_facts(served, claimed),
        ),
        remedy="The draft's files are right; look at the engine's path for this wire.",
        figures={
            "agreement": served.agreement,
            "explained": named.explained,
            "accept_length": served.accept_length,
            "expected_accept_length": served.expected_accept_length,
        },
        claims=f"physical layers {list(claimed.slots)}",
        score=evidence_score(named.explained, math.inf),
    )


def _facts(served: Served, claimed: Wiring) -> Iterator[Fact]:
    for row in served.rows:
        streams = zip(row.streams, claimed.slots, strict=True)
        told = [f"{row.rows} rows of {', '.join(s.told(own) for s, own in streams)}"]
        told += [f"{100 * row.wrong_tokens:.1f} % with another token than the text's next"]
        if row.missing:
            told.append(f"{100 * row.missing:.0f} % of the kept rows not fed")
        yield Fact(text="; ".join(told), where=f"fed to the draft in {row.phase}")
    for change, share in served.alternatives[:3]:
        yield Fact(text=f"{change.name}: {100 * share:.1f} % of the steps", where="tried instead")


def name_engine(served: Served, claimed: Wiring) -> Named:
    """Which wire the engine has otherwise."""
    if served.map_read:
        return Named(wire=served.map_read, told=MAPS[served.map_read], explained=1.0)
    fit = _fit(served)
    rows = _by_rows(served, claimed)
    if fit is not None and (rows is None or fit.explained >= rows.explained):
        return fit
    if rows is not None:
        return rows
    if served.differs_from is not None:
        told = f"steps are as claimed before position {served.differs_from} and wrong from there on"
        return Named(wire="positions", told=told, explained=1.0)
    told = "its rows are right and no known wiring makes its steps: the draft computes otherwise"
    return Named(wire="unnamed", told=told, explained=0.0)


def _fit(served: Served) -> Named | None:
    """The candidate that makes nearly all steps, the odd ones above all."""
    if not served.alternatives:
        return None
    best, share = served.alternatives[0]
    explained = (share - served.agreement) / max(1 - served.agreement, 1e-12)
    if share < NAMED or explained < MOST_OF_IT:
        return None
    told = f"its steps fit {_alike(served, best, share)}"
    return Named(wire=best.wire, told=told, explained=min(explained, 1.0))


def _alike(served: Served, best: Change, share: float) -> str:
    others = [c.name for c, other in served.alternatives[1:3] if other == share]
    return f"{best.name} (as do: {', '.join(others)})" if others else best.name


def _by_rows(served: Served, claimed: Wiring) -> Named | None:
    """What the rows fed say, the plainest first."""
    by = {row.phase: row for row in served.rows}
    prefill, verify = by.get("prefill"), by.get("verify")
    found = _counts(prefill, verify) or _features(prefill, verify, claimed)
    return None if found is None else Named(wire=found[0], told=found[1], explained=_after(served))


def _counts(prefill: Rows | None, verify: Rows | None) -> tuple[str, str] | None:
    """Rows left out, another row that guesses, tokens that are not the text's."""
    if verify is not None and verify.missing:
        told = f"{100 * verify.missing:.0f} % of the rows kept by a verify are never redone"
        return "extend", f"{told} with true features"
    if prefill is not None and prefill.wrong_tokens and prefill.borders == 1.0:
        return "border", "the last row of a prompt's chunk has another token than the next one"
    wrong = max((r.wrong_tokens for r in (prefill, verify) if r is not None), default=0.0)
    if wrong:
        return "pairing", f"{100 * wrong:.0f} % of the rows have another token than the text's next"
    if verify is not None and verify.wrong_guess:
        share = 100 * verify.wrong_guess
        return "guess_row", f"after {share:.0f} % of the verifies another row guesses than the last"
    return None


def _features(prefill: Rows | None, verify: Rows | None, claimed: Wiring) -> tuple[str, str] | None:
    """Streams that are not the claimed layers'."""
    odd = {
        row.phase: [
            (s, own)
            for s, own in zip(row.streams, claimed.slots, strict=True)
            if s.kind != "layer" or s.layer != own
        ]
        for row in (prefill, verify)
        if row is not None
    }
    where = [phase for phase, found in odd.items() if found]
    if not where:
        return None
    if verify is not None and verify.stale > STALE:
        told = (
            f"{100 * verify.stale:.0f} % of the rows after a verify have features of the one before"
        )
        return "features_stale", f"{told}: a buffer that is not refilled"
    only = f" in {where[0]} only" if len(where) == 1 and len(odd) > 1 else ""
    told = ", ".join(f"{s.told(own)} for layer {own}" for s, own in odd[where[0]])
    kinds = {s.kind for s, _ in odd[where[0]]}
    if kinds == {"layer"}:
        wire = "verify_slots" if where == ["verify"] else "slots"
        return wire, f"other layers arrive{only}: {told}"
    kind = next(k for k in PARTLY if k in kinds)
    wire, words = PARTLY[kind]
    return wire, f"{words}{only}: {told}"


def _after(served: Served) -> float:
    """Part of the odd steps that come at or after the first wrong row of their text."""
    begins = np.array([np.iinfo(np.int64).max if b is None else b for b in served.audit.wrong_from])
    odd = served.accepted != served.expected
    if not odd.any():
        return 1.0
    return float((served.at[odd] > begins[served.texts[odd]]).mean())
