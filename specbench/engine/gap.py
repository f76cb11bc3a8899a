"""How close the target's two best tokens are: whether a difference of outputs has an excuse."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import replace

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.memory import Memory
from specbench.engine.pair import ModelPair
from specbench.engine.runner import TargetRunner, chunks


def top2_gap(pair: ModelPair, config: EngineConfig, tokens: Ids[int]) -> float:
    """(first - second) / max(|first|, 1) of the target's scores after ``tokens``.

    A plain forward over the whole sequence, in slots of its own.
    """
    alone = replace(config, max_batch_size=1, max_len=len(tokens), prefix_reuse=False)
    memory = Memory(pair, alone)
    runner = TargetRunner(
        pair.target,
        memory.target,
        memory.target_rope,
        SpecConfig.baseline(),
        Graphs(pair.device, GraphMode.EAGER),
    )
    for start, part, last in chunks(tokens):
        scores = runner.prefill(0, start, part, last=last)
    first, second = map(float, scores.logits[0].double().topk(2)[0].tolist())
    return (first - second) / max(abs(first), 1.0)
