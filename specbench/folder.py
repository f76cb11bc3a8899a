"""The folder of a run: the names in it that are the run's own, and whether it is still unused."""

from __future__ import annotations

from pathlib import Path

from specbench.errors import OutputError
from specbench.journal import INDEX, TEMPORARY
from specbench.run_json import RUN_JSON

PARTS = ("inputs", "requests", "steps")  # of the journal
STEPS = "steps.parquet"
OURS = frozenset({RUN_JSON, STEPS, INDEX, *(f"{part}.jsonl" for part in PARTS)})


def make_empty(path: Path) -> None:
    """Make the folder ``path``, or see that it holds nothing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be made: {error.strerror or error}.", todo="Choose another folder."
        ) from error
    if not unused(path):
        raise OutputError(
            f"{path} exists and is not empty.",
            expected="A new or empty folder.",
            todo="Choose another folder, or go on with the run in it with --resume.",
        )


def unused(path: Path) -> bool:
    """True when the folder holds nothing but what a start that was killed early leaves."""
    try:
        return all(
            entry.name.startswith(TEMPORARY) or (entry.name in OURS and not entry.stat().st_size)
            for entry in path.iterdir()
        )
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror or error}.") from error


def clear(path: Path) -> None:
    """Remove unfinished files that a killed process left."""
    for stale in path.glob(f"{TEMPORARY}*"):
        stale.unlink(missing_ok=True)
