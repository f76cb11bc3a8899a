"""Settings of a run: sizes, steps and folders."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.demo_pair.model import Shape
from tools.demo_pair.record import Record, digest


@dataclass(frozen=True)
class Plan(Record):
    """Everything that decides a run; the defaults give the shipped pair."""

    out: Path
    shape: Shape = field(default_factory=Shape)
    seed: int = 20260
    characters: int = 11_000_000
    documents: bool = True
    length: int = 512
    rows: int = 8
    target_steps: int = 660
    round_steps: int = 30
    tune_prompts: int = 320
    tune_rate: float = 1.0  # multiplies the learning rates of stage tune
    policy_prompts: int = 1500
    policy_tokens: int = 112
    draft_steps: int = 300
    again_prompts: int = 3000
    again_steps: int = 520
    draft_rows: int = 2
    ttt_steps: int = 6
    validation: int = 60
    compile: bool = False
    grow: Path | None = None  # a pair whose target is made deeper instead of a new one

    def made_from(self) -> dict[str, str]:
        """What the files of the working folder follow from; counts of steps may change."""
        facts = {name: str(getattr(self, name)) for name in ("seed", "documents", "characters")}
        facts |= {name: str(value) for name, value in asdict(self.shape).items()}
        if self.grow is not None:
            files = sorted(self.grow.glob("*/model.safetensors"))
            facts["a pair to grow of sha256"] = digest(files)[:12]
        return facts
