"""Golden reference curves on disk: what a run measured, small enough for a repository.

A reference is one JSON file. ``specbench compare`` takes it wherever it takes a run directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specbench.conclude import summary_input
from specbench.config import load_strict
from specbench.errors import ConfigError, OutputError
from specbench.fingerprint import fingerprint, topics
from specbench.journal import write_atomically
from specbench.metrics.arms import gather
from specbench.metrics.curves import Curve, by_key, curves
from specbench.metrics.summary import summarise
from specbench.rows import no_constant, plain
from specbench.store import RunDir

SCHEMA = "specbench reference 1"
MOST_BYTES = 256 * 1024 * 1024
MOST = 2**63 - 1  # of a count or a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One side of a comparison: the topics and fingerprint of a run, and its curves."""

    schema: str = SCHEMA
    fingerprint: str
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()


def read(path: Path) -> Reference:
    """A run directory, or a file that ``save`` wrote.

    Raises:
        OutputError: it is neither, or it is damaged.
    """
    return _of_run(path) if path.is_dir() else _of_file(path)


def save(reference: Reference, path: Path) -> None:
    """Write the file at once.

    Raises:
        OutputError: it cannot be written.
    """
    write_atomically(path, json.dumps(plain(reference), indent=1) + "\n")


def _of_run(path: Path) -> Reference:
    with RunDir.open(path) as run_dir:
        given = summary_input(run_dir)
        arms = gather(given.runs)
        found = curves(summarise(given, arms), arms)
        return Reference(
            fingerprint=fingerprint(run_dir.run_json),
            topics=topics(run_dir.run_json),
            curves=found,
        )


def _of_file(path: Path) -> Reference:
    expected = "A run directory, or a file that `specbench compare --save-reference` wrote."
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OutputError(f"{path} is larger than {MOST_BYTES} bytes.", expected=expected)
        content = json.loads(path.read_bytes(), parse_constant=no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(f"{path} cannot be read: {error}.", expected=expected) from error
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        raise OutputError(f"{path} is no reference.", expected=expected)
    try:
        reference = load_strict(Reference, content, source=str(path))
    except (ConfigError, TypeError, ValueError) as error:
        raise OutputError(f"{path} is damaged: {error}", todo="Save it again.") from error
    if wrong := _wrong(reference):
        raise OutputError(f"{path} is damaged: {wrong}.", todo="Save it again.")
    return reference


def _wrong(reference: Reference) -> str:
    """What no run can have measured; empty when all may be."""
    if len(by_key(reference.curves)) != len(reference.curves):
        return "an arm stands in it twice"
    for curve in reference.curves:
        counts = [n for unit in curve.units for n in (unit.tokens, unit.steps)]
        for one in curve.timings:
            counts += (one.plain_ns, one.plain_tokens, one.spec_ns, one.spec_tokens)
        if bad := [n for n in counts if not 0 <= n <= MOST]:
            return f"a count of {curve.key.point_id} is {str(bad[0])[:24]}, not 0 to 2^63 - 1"
    return ""
