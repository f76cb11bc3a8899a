"""What a run says and keeps of itself in its working folder, for its cards."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench.errors import OutputError

MADE_FROM = "made_from.json"


def digest(paths: Iterable[Path]) -> str:
    """One sha256 over the contents of files, in this order."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


@dataclass(frozen=True)
class Record:
    """A run with a working folder: ``log.txt`` and ``measured.json`` are in it."""

    work: Path

    def path(self, name: str) -> Path:
        """A file in the working folder."""
        return self.work / name

    def check_made_from(self, facts: Mapping[str, str]) -> None:
        """See that what lies in the folder, if anything, was made from ``facts``.

        Raises:
            OutputError: it was made from something else.
        """
        path = self.path(MADE_FROM)
        if not path.exists():
            return
        try:
            known = dict(json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise OutputError(
                f"{path} is not what a run writes: {error}.", todo="Take a new --work."
            ) from error
        for name in {**known, **facts}:
            old, new = known.get(name, "nothing"), facts.get(name, "nothing")
            if old != new:
                raise OutputError(
                    f"What lies in {self.work} was made with {name} {old}, not {new}.",
                    expected="The same, since later stages read it.",
                    todo="Take a new --work, or remove what is in it to begin anew.",
                )

    def keep_made_from(self, facts: Mapping[str, str]) -> None:
        """Write down what the files of the folder are made from."""
        part = self.path(f"{MADE_FROM}.part")
        part.write_text(json.dumps(dict(facts), indent=1))
        part.replace(self.path(MADE_FROM))

    def log(self, stage: str, text: str) -> None:
        """Print, and keep in the working folder."""
        line = f"{time.strftime('%H:%M:%S')} {stage}: {text}"
        print(line, flush=True)
        with self.path("log.txt").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def record(self, stage: str, values: dict[str, object]) -> None:
        """Keep measured values of a stage for the cards."""
        path = self.path("measured.json")
        table = json.loads(path.read_text()) if path.exists() else {}
        table[stage] = {**table.get(stage, {}), **values}
        path.write_text(json.dumps(table, indent=1))

    def measured(self) -> dict[str, dict[str, object]]:
        """What the stages recorded."""
        found: dict[str, dict[str, object]] = json.loads(self.path("measured.json").read_text())
        return found
