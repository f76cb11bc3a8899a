"""A finding: what is wrong with a pair or a run, how it is known, and the line to change."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench.doctor.catalogue import kind_of

Figure = float | int | str
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
    claim in the matter. ``score`` in 0..1 orders findings of one severity: how much of a low
    acceptance this would explain, and how sure it is.

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


def rank(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity, then score, then code; a finding that is there twice is kept once."""
    unique: list[Finding] = []
    for finding in findings:
        if finding not in unique:
            unique.append(finding)
    return tuple(sorted(unique, key=lambda f: (_ORDER.index(f.severity), -f.score, f.code)))


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
