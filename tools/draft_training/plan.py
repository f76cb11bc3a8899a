"""Settings of a run, and what it says and records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from specbench.config import MOST_THREADS
from specbench.errors import ConfigError, OutputError
from tools.demo_pair.record import Record


@dataclass(frozen=True, kw_only=True)
class Plan(Record):
    """Everything that decides a run. Lengths are in tokens, ``capture`` in physical indices.

    ``prompts`` name workloads, files or ``templates:N``; the first ``replies`` of their shuffled
    prompts are answered, 0 for all. ``evaluate`` is the workload that the
    card's figures come from; its prompts are never trained on. ``shard`` texts are generated and
    captured together, and saved before the next.
    """

    target: Path
    out: Path
    work: Path
    prompts: tuple[str, ...]
    replies: int = 0
    evaluate: str = "default"
    evaluate_requests: int = 100
    evaluate_tokens: int = 96
    evaluate_steps: int = 5
    capture: tuple[int, ...] = ()
    draft_vocab: int = 4096
    max_tokens: int = 112
    longest_prompt: int = 400
    greedy_share: float = 0.5
    temperature: float = 0.7
    batch: int = 16
    shard: int = 64
    steps: int = 400
    rows: int = 8
    ttt_steps: int = 5
    from_layer: int = -1
    muon_rate: float = 0.02
    adam_rate: float = 2e-3
    seed: int = 20260
    threads: int = 1
    layout: str = "specforge"
    engine: str = ""

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                span = f"{least:g} or more" if most == HUGE else f"{least:g}..{most:g}"
                raise ConfigError(f"--{name.replace('_', '-')} {value}.", expected=f"{span}.")
        for name in ("temperature", "muon_rate", "adam_rate"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(f"--{name.replace('_', '-')} {value}.", expected="Over 0.")

    def need(self, path: Path, stage: str) -> Path:
        """``path``, which ``stage`` has made.

        Raises:
            OutputError: it has not.
        """
        if not path.exists():
            raise OutputError(
                f"{path} is not there.",
                expected=f"What stage {stage} leaves, with the same settings.",
                todo=f"Run --stage {stage} first.",
            )
        return path


HUGE = 2**31 - 1
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("replies", "seed"), (0, HUGE)),
    **dict.fromkeys(
        ("draft_vocab", "max_tokens", "longest_prompt", "batch", "shard", "steps", "rows",
         "ttt_steps", "evaluate_requests", "evaluate_tokens", "evaluate_steps"),
        (1, HUGE),
    ),
    "greedy_share": (0, 1),
    "from_layer": (-1, HUGE),
    "threads": (1, MOST_THREADS),
}  # fmt: skip
