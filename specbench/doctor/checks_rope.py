"""Rotary embedding of the draft beside the target's: base, scaling, trained length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specbench.doctor.checks_subject import Side, Subject
from specbench.doctor.findings import Fact, Finding, Severity

_PLAIN = ("default", None)
MOST_THETA = 1e15


def rope_of(side: Side) -> tuple[float | None, str]:
    """Base and kind of scaling, in either spelling; None where the config names no base."""
    config = side.config
    nested = config.get("rope_parameters")
    table: Mapping[str, Any] = nested if isinstance(nested, Mapping) else {}
    scaling = config.get("rope_scaling")
    old: Mapping[str, Any] = scaling if isinstance(scaling, Mapping) else {}
    base = config.get("rope_theta", table.get("rope_theta"))
    both = {**old, **table}
    kind = both.get("rope_type", both.get("type"))
    known = isinstance(base, int | float) and not isinstance(base, bool) and abs(base) < MOST_THETA
    theta = float(base) if known else None
    return theta, "none" if kind in _PLAIN else str(kind)[:40]


def check_rope(subject: Subject) -> Iterator[Finding]:
    """Differences are notes where they may be meant, and warnings where they cost something."""
    draft, target = subject.draft, subject.target
    (own, kind), (theirs, target_kind) = rope_of(draft), rope_of(target)
    if theirs is not None and (10_000.0 if own is None else own) != theirs:
        told = "names no rope_theta, so 10000" if own is None else f"has rope_theta {own:g}"
        yield Finding(
            code="rope.theta",
            severity=Severity.NOTE,
            title=f"The draft {told}; the target has {theirs:g}",
            evidence=(
                Fact(text=str(own), where=draft.at("rope_theta")),
                Fact(text=f"{theirs:g}", where=target.at("rope_theta")),
            ),
            remedy="Keep it unless a probe of both prefers the other: drafts are often trained so.",
            figures={"draft_theta": own or 10_000.0, "target_theta": theirs},
            score=0.4,
        )
    if kind != target_kind:
        yield Finding(
            code="rope.scaling",
            severity=Severity.NOTE,
            title=f"Scaling of rotations: draft {kind}, target {target_kind}",
            evidence=(
                Fact(text=kind, where=draft.at("rope_scaling")),
                Fact(text=target_kind, where=target.at("rope_scaling")),
            ),
            remedy="Compare acceptance on short and long prompts; a converter may have dropped it.",
            score=0.4,
        )
    length = draft.integer("max_position_embeddings")
    longest = target.integer("max_position_embeddings")
    if length is not None and longest is not None and length < longest:
        yield Finding(
            code="rope.positions",
            severity=Severity.WARNING,
            title=f"The draft's positions end at {length}, the target's at {longest}",
            evidence=(
                Fact(text=str(length), where=draft.at("max_position_embeddings")),
                Fact(text=str(longest), where=target.at("max_position_embeddings")),
            ),
            remedy=f"Limit sequences to {length}, or look at acceptance by context length.",
            figures={"draft_positions": length, "target_positions": longest},
            score=0.5,
        )
