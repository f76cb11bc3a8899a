"""The split of a gap as a finding, and what of it is inferred."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.doctor.findings import Fact, Finding, Severity
from specbench.doctor.gap import Framework, Gap, Term


def inferred(gap: Gap) -> str:
    """What the served first position rests on where nobody counted it; empty where it is known."""
    if gap.inferred is None:
        return ""
    return (
        f"served {100 * gap.inferred:.1f} % is inferred from the accept length, taking acceptance "
        "equal at all positions; --engine gives what was counted"
    )


def gap_finding(gap: Gap, framework: Framework, accuracies: Sequence[float]) -> Finding:
    """The split as a finding."""
    rest = gap.terms[-1].points
    large = rest is not None and rest > 0.1
    beside = "" if gap.served is None else f", measured {gap.served:.2f}"
    figures: dict[str, float] = {"implied_accept_length": gap.implied}
    figures |= {t.name: t.points for t in gap.terms if t.points is not None}
    return Finding(
        code="gap.split",
        severity=Severity.WARNING if large else Severity.NOTE,
        title=f"{100 * accuracies[0]:.1f} % in {framework.name} training implies an accept length "
        f"of {gap.implied:.2f}{beside}",
        evidence=(
            Fact(text=framework.source, where="definition"),
            *(Fact(text=told, where="first position") for told in [inferred(gap)] if told),
            *(Fact(text=_told(term), where=term.name) for term in gap.terms),
        ),
        remedy=_remedy(gap) if large or rest is None else "",
        figures=figures,
        score=0.6,
    )


def _remedy(gap: Gap) -> str:
    missing = [term.name for term in gap.terms[:-1] if term.points is None]
    if missing:
        return (
            f"Not measured: {', '.join(missing)}. --target and --draft measure what a pair can "
            "tell, --train-data and --train-template the rest."
        )
    return "specbench doctor with the same pair scores the wiring and the engine."


def _told(term: Term) -> str:
    points = "not measured" if term.points is None else f"{100 * term.points:+.1f} points"
    return f"{points}: {term.why}"
