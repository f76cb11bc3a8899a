"""Batched generation from the target with a KV cache, and the loop measure."""

from __future__ import annotations

import torch
from torch import Tensor

from tools.demo_pair.model import Cache, Target


def repeated_ngrams(tokens: list[int], n: int = 4) -> float:
    """Share of n-grams that occurred before in the same text."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def repeat_positions(tokens: list[int], n: int = 4) -> list[int]:
    """Indices of tokens that complete an n-gram seen before."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for index in range(n - 1, len(tokens)):
        gram = tuple(tokens[index - n + 1 : index + 1])
        if gram in seen:
            found.append(index)
        seen.add(gram)
    return found


def _choose(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]


def _new_cache(model: Target, batch: int, columns: int) -> Cache:
    shape = (batch, model.shape.kv_heads, columns, model.shape.head_dim)
    return [(torch.zeros(shape), torch.zeros(shape)) for _ in model.layers]


@torch.inference_mode()
def _batch(
    model: Target, prompts: list[list[int]], new: int, end: int, temperature: float, seed: int
) -> list[list[int]]:
    width = max(map(len, prompts))
    pads = torch.tensor([width - len(p) for p in prompts])
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    columns = torch.arange(width + new)
    visible = columns[None] >= pads[:, None]
    cache = _new_cache(model, len(prompts), width + new)
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    first = (visible[:, None, :width] & causal) | torch.eye(width, dtype=torch.bool)
    positions = (torch.arange(width)[None] - pads[:, None]).clamp_min(0)
    logits = model.extend(ids, positions, first, cache, 0)
    generator = torch.Generator().manual_seed(seed)
    alive = list(range(len(prompts)))
    outputs: list[list[int]] = [[] for _ in prompts]
    for step in range(new):
        tokens = _choose(logits, temperature, generator)
        for row, token in zip(alive, tokens.tolist(), strict=True):
            outputs[row].append(token)
        keep = [i for i, row in enumerate(alive) if end not in outputs[row]]
        if not keep or step == new - 1:
            break
        if len(keep) < 0.75 * len(alive):
            index = torch.tensor(keep)
            cache = [(k[index], v[index]) for k, v in cache]
            alive, tokens, pads, visible = (
                [alive[i] for i in keep],
                tokens[index],
                pads[index],
                visible[index],
            )
        at = width + step
        logits = model.extend(
            tokens[:, None], (at - pads)[:, None], visible[:, None, : at + 1], cache, at
        )
    return [out[: out.index(end) + 1] if end in out else out for out in outputs]


def generate(
    model: Target,
    prompts: list[list[int]],
    new: int,
    end: int,
    temperature: float = 0.0,
    seed: int = 0,
    batch: int = 64,
) -> list[list[int]]:
    """Continuations in the order of the prompts, each up to and including ``end``."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    results: list[list[int]] = [[] for _ in prompts]
    for at in range(0, len(order), batch):
        chosen = order[at : at + batch]
        made = _batch(model, [prompts[i] for i in chosen], new, end, temperature, seed + at)
        for index, out in zip(chosen, made, strict=True):
            results[index] = out
    return results
