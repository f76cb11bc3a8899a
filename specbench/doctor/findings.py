"""A finding: what is wrong with a pair or a run, how it is known, and the line to change."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench.doctor.catalogue import kind_of

Figure = float | int | str
FAULT_Z = 3.0
_ORDER = ("error", "warning", "note")


class Severity(enum.StrEnum):
    """An error is a fault that was shown; a warning a likely one; a note is worth knowing."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One observation and where it was made: a file and key, a tensor, a probe, a counter."""

    text: str
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found.

    ``code`` is registered in ``catalogue``; ``title`` says this case in one line; ``remedy`` is
    the line to change or the next test. ``figures`` are named numbers, ``claims`` what the files
    claim in the matter. ``score`` in 0..1 orders findings of one severity: which part of a low
    acceptance this explains, and how sure that is. Where both were measured it is
    ``evidence_score``; for facts of files and launch arguments it is what such a fault cost where
    it was reported (``failures``), 1 where nothing is ever accepted.

    Raises:
        KeyError: the code is not registered, a mistake of the program.
        ValueError: a score outside 0..1, a mistake of the program.
    """

    code: str
    severity: Severity
    title: str
    evidence: tuple[Fact, ...] = ()
    remedy: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    claims: str = ""
    score: float = 0.5

    def __post_init__(self) -> None:
        kind_of(self.code)
        if not 0 <= self.score <= 1:
            raise ValueError(f"score {self.score} of {self.code} lies outside 0..1")

    @property
    def failures(self) -> tuple[str, ...]:
        """The F-numbers of engine-spec 10.2 that it stands for."""
        return kind_of(self.code).failures


def evidence_score(explained: float, z: float) -> float:
    """Score of what was measured: the part of the loss that it explains, times what its standard
    errors leave of it.

    The factor z² / (z² + 9) is one half at the three standard errors where a fault is declared,
    and 1 for what is exact.

    Args:
        explained: gain of the repair over the whole loss, clipped to 0..1.
        z: gain over its standard error; infinite for what was counted, not sampled.

    >>> evidence_score(1.0, 3.0), evidence_score(0.5, math.inf), evidence_score(1.0, -2.0)
    (0.5, 0.5, 0.0)
    """
    if z <= 0:
        return 0.0
    sure = 1.0 if math.isinf(z) else z * z / (z * z + FAULT_Z * FAULT_Z)
    return min(max(explained, 0.0), 1.0) * sure


def rank(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity, then score, then code; a finding that is there twice is kept once.

    A consequence stands behind its cause whatever their scores: a shape of the counts behind the
    wire that was found, a parity that fails behind the engine's row that was named
    (``Kind.follows``). Notes explain nothing.
    """
    unique: list[Finding] = []
    for finding in findings:
        if finding not in unique:
            unique.append(finding)
    return tuple(sorted(unique, key=lambda f: _place(f, unique)))


def _place(finding: Finding, among: list[Finding]) -> tuple[int, int, float, str]:
    causes = _causes(finding, among)
    own = _ORDER.index(finding.severity)
    behind = min((_ORDER.index(c.severity) for c in causes), default=own)
    depth = _depth(finding, [f for f in among if f.severity is not Severity.NOTE])
    return max(own, behind), depth, -finding.score, finding.code


def _causes(finding: Finding, among: Iterable[Finding]) -> list[Finding]:
    return [c for c in among if c.severity is not Severity.NOTE and _explains(c, finding)]


def _depth(finding: Finding, among: list[Finding]) -> int:
    """How many causes stand behind one another before it: 0 for one that nothing explains."""
    rest = [f for f in among if f is not finding]
    return max((1 + _depth(c, rest) for c in _causes(finding, rest)), default=0)


def _explains(cause: Finding, finding: Finding) -> bool:
    """Of two that would each explain the other, neither does."""
    return kind_of(finding.code).comes_of(cause.code) and not kind_of(cause.code).comes_of(
        finding.code
    )


def has_error(findings: Iterable[Finding]) -> bool:
    """Whether a gate on these fails."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def to_json(finding: Finding) -> dict[str, Any]:
    """Plain data of a finding, with what the catalogue says of its code."""
    kind = kind_of(finding.code)
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "title": finding.title,
        "failures": list(kind.failures),
        "evidence": [{"text": fact.text, "where": fact.where} for fact in finding.evidence],
        "claims": finding.claims,
        "remedy": finding.remedy,
        "figures": dict(finding.figures),
        "score": finding.score,
        "why": kind.why,
    }
