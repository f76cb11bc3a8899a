"""Stage features: the target's streams over the texts, once, on disk; and batches read from them.

A token takes 4·(A + 1)·H bytes: the A captured streams, and the last state after the final norm,
from which the scores of the draft's vocabulary follow. They come from the engine's own forward, so
the draft is trained on what it will be given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter as clock

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional

from specbench.checkpoint.id_rules import usual
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_text import Sample
from specbench.engine.wiring import Tap
from tools.demo_pair import checkpoint
from tools.demo_pair.draft_loop import Fetch, Rows
from tools.draft_training.plan import Plan
from tools.draft_training.texts import load_target, needed_texts, read_texts


def captured_layers(plan: Plan, layers: int) -> tuple[int, ...]:
    """What the plan asks for, else the default of EAGLE-3: physical 2, n // 2 and n - 3."""
    return plan.capture or usual(layers)


def stage_features(plan: Plan) -> None:
    """Capture what is not yet there, a file a shard."""
    texts = needed_texts(plan)
    begin, pair = clock(), load_target(plan)
    layers = captured_layers(plan, pair.target_spec.n_layers)
    files = shard_files(plan, len(texts), layers)
    for number, path in enumerate(files):
        if path.exists():
            continue
        chosen = texts[number * plan.shard : (number + 1) * plan.shard]
        checkpoint.save(path, captured(pair, chosen, layers))
        plan.log("features", f"{number + 1} of {len(files)} shards, {clock() - begin:.0f} s")
    size = sum(path.stat().st_size for path in files) / 1e6
    plan.record("features", {"capture": list(layers), "megabytes": round(size)})


def shard_files(plan: Plan, texts: int, layers: tuple[int, ...]) -> list[Path]:
    """Where each shard's features lie; the layers and the number of texts are in the name."""
    name = "-".join(map(str, layers))
    count = -(-texts // plan.shard)
    sizes = [min(plan.shard, texts - i * plan.shard) for i in range(count)]
    return [plan.path(f"features-{name}-{i}-{n}.safetensors") for i, n in enumerate(sizes)]


def captured(
    pair: ModelPair, samples: Sequence[Sample], layers: tuple[int, ...]
) -> dict[str, Tensor]:
    """Tensors of a shard, texts after one another [T, ...]."""
    found: Capture = capture(pair, samples, layers=layers, taps=(Tap.RESIDUAL,))
    streams = torch.cat([found.features[Tap.RESIDUAL, k] for k in layers], dim=-1)
    return {"features": streams, "normed": found.normed, "best": found.best}


def on_disk(plan: Plan, layers: tuple[int, ...], head: Tensor, tokens: Tensor) -> Fetch:
    """Batches of texts by their numbers, padded to the longest; features are read as asked.

    Args:
        plan: where the shards lie.
        layers: captured physical indices.
        head: the target's output matrix [V, H].
        tokens: target ids of the draft's vocabulary [Vd].
    """
    texts, known = read_texts(plan), head[tokens]
    files = shard_files(plan, len(texts), layers)
    starts: list[int] = []
    for number in range(len(texts)):
        fresh = number % plan.shard == 0
        starts.append(0 if fresh else starts[-1] + len(texts[number - 1].tokens))

    def one(number: int, length: int) -> dict[str, Tensor]:
        text, size = texts[number], len(texts[number].tokens)
        rows = slice(starts[number], starts[number] + size)
        with safe_open(str(files[number // plan.shard]), framework="pt") as file:
            found = {name: file.get_slice(name)[rows] for name in ("features", "normed", "best")}
        place = torch.arange(size)
        found["ids"], found["inside"] = torch.tensor(text.tokens), place >= text.prompt_len
        return {name: _padded(value, length) for name, value in found.items()}

    def fetch(numbers: Tensor) -> Rows:
        chosen = numbers.tolist()
        length = max(len(texts[number].tokens) for number in chosen)
        made = [one(number, length) for number in chosen]
        batch = {name: torch.stack([row[name] for row in made]) for name in made[0]}
        return Rows(
            ids=batch["ids"],
            inside=batch["inside"],
            features=batch["features"],
            goals=functional.linear(batch["normed"], known),
            best=batch["best"],
        )

    return fetch


def _padded(value: Tensor, length: int) -> Tensor:
    """Zeros (false) behind the rows, up to ``length``."""
    out = value.new_zeros(length, *value.shape[1:])
    out[: len(value)] = value
    return out
