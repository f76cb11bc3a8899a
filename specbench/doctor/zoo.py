"""A zoo of injected faults: what is wrong, how it is made, and what the doctor must say of it.

Every entry is a real fault of engine-spec 10.2: an edited checkpoint, another launch, or a switch
of ``engine.faults`` that makes an engine wrong. Entries of one ``kind`` are the same wiring in
another spelling; they are scored as one. ``benchmarks/doctor_zoo.py`` runs them all.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.doctor.findings import Finding, Severity

Edit = Callable[[Path], None]
SHAPES = (
    "flat", "first", "tail", "one", "long", "category", "cycle", "graph", "batch", "rank", "none",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A finding that is right: its ``code``, and words that must stand in its title, where the code
    alone does not say which wire it is (``layer 2 instead of 0``)."""

    code: str
    says: str = ""

    def matches(self, finding: Finding) -> bool:
        """Whether a finding says this."""
        return fnmatch.fnmatchcase(finding.code, self.code) and self.says in finding.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One entry.

    ``failures`` are F-numbers of engine-spec 10.2, ``shape`` is the signature that it expects
    (10.1), ``causes`` are the findings that count as right. How it is made: ``draft`` and
    ``target`` edit a copy of that folder, ``switch`` is a fault of ``engine.faults``, ``launch``
    are launch arguments, ``engine`` a code base and version to judge the ids for; ``given`` are
    layers said by flag, ``as_default`` says ``--capture-default``. ``share_embedding`` lets the
    engine replace the draft's embedding. ``raw_prompts`` sends the messages as plain text.
    """

    name: str
    failures: tuple[str, ...]
    kind: str
    shape: str
    causes: tuple[Cause, ...]
    draft: Edit | None = None
    target: Edit | None = None
    switch: str = ""
    launch: str = ""
    engine: str = ""
    given: tuple[int, ...] | None = None
    as_default: bool = False
    share_embedding: bool = False
    raw_prompts: bool = False

    def __post_init__(self) -> None:
        ways = (self.draft, self.target, self.switch, self.launch, self.engine, self.raw_prompts)
        if not any(ways):
            raise ValueError(f"{self.name} changes nothing")
        if self.shape not in SHAPES:
            raise ValueError(f"{self.name}: no shape {self.shape!r}")

    def place(self, ranked: Sequence[Finding]) -> int | None:
        """Place of the right cause in a ranked list, 1 the first; None where it is missing.

        Notes that accuse nothing are not counted.
        """
        told = [f for f in ranked if f.severity is not Severity.NOTE]
        hits = (i for i, f in enumerate(told, 1) if any(c.matches(f) for c in self.causes))
        return next(hits, None)


def cause(code: str, says: str = "") -> tuple[Cause, ...]:
    """One cause alone."""
    return (Cause(code=code, says=says),)


def kinds_of(faults: Iterable[Fault]) -> dict[str, list[Fault]]:
    """Entries by kind, in order."""
    found: dict[str, list[Fault]] = {}
    for fault in faults:
        found.setdefault(fault.kind, []).append(fault)
    return found


def every_fault() -> tuple[Fault, ...]:
    """The whole zoo."""
    from specbench.doctor.zoo_engine import ENGINE_FAULTS
    from specbench.doctor.zoo_files import FILE_FAULTS
    from specbench.doctor.zoo_launch import LAUNCH_FAULTS

    return (*FILE_FAULTS, *LAUNCH_FAULTS, *ENGINE_FAULTS)
