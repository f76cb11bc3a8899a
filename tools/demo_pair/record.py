"""What a run says and keeps of itself in its working folder, for its cards."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """A run with a working folder: ``log.txt`` and ``measured.json`` are in it."""

    work: Path

    def path(self, name: str) -> Path:
        """A file in the working folder."""
        return self.work / name

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
