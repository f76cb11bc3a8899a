"""Settings of a run, and what it says and records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
