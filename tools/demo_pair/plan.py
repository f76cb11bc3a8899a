"""Settings of a run: sizes, steps and folders."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.demo_pair.model import Shape


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run; the defaults give the shipped pair."""

    out: Path
    work: Path
    shape: Shape = field(default_factory=Shape)
    seed: int = 20260
    characters: int = 11_000_000
    documents: bool = True
    length: int = 512
    rows: int = 8
    target_steps: int = 660
    round_steps: int = 30
    tune_prompts: int = 320
    policy_prompts: int = 1500
    policy_tokens: int = 112
    draft_steps: int = 300
    again_prompts: int = 3000
    again_steps: int = 520
    draft_rows: int = 2
    ttt_steps: int = 6
    validation: int = 60
    compile: bool = False

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
