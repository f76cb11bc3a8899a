"""Drafts of several layers, with latent attention or normed heads, that are right often.

The skill is that of ``tests.tiny``: attention so sharp that a row sees only itself, values that put
the embedding of the row's own token in place of its state, and the target's head. Layers above add
a little of their own, so that a wrong mask there shows in states, and accept lengths still vary.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.drafts import NOPE, Q_RANK, ROPE, Kind, attention, latent_config
from tests.tiny import TinyPair, TinyShape, write_folder, write_pair

GAIN, SHARP, SMALL = 8.0, 12.0, 0.3
SKILLED = (
    Kind(name="two layers", layers=2),
    Kind(name="three layers, normed heads", layers=3, head_norm=True),
    Kind(name="latent", latent=True, flags=("norm_output",)),
    Kind(name="two latent layers", latent=True, layers=2, flags=("norm_output",)),
)


def write_skilled(folder: Path, kind: Kind) -> TinyPair:
    """A tiny pair whose draft is of ``kind``, with skill."""
    pair = write_pair(folder)
    shape, generator = pair.shape, torch.Generator().manual_seed(3)

    def new(*size: int) -> Tensor:
        values = torch.randn(size, generator=generator)
        return 1 + 0.3 * values if len(size) == 1 else values * size[1] ** -0.5

    tensors = load_file(pair.draft / "model.safetensors")
    config: dict[str, Any] = json.loads((pair.draft / "config.json").read_text())
    config |= {"num_hidden_layers": kind.layers, **dict.fromkeys(kind.flags, True)}
    if kind.latent:
        value = shape.hidden // shape.heads
        config |= {**latent_config(kind), "v_head_dim": value, "kv_lora_rank": shape.hidden}
        tensors = {n: t for n, t in tensors.items() if ".self_attn." not in n}
        tensors |= _sharp_latent(shape)
        tensors["fc.weight"] *= 0.1 / GAIN
    if kind.head_norm:
        sharp = torch.full((shape.head_dim,), SHARP)
        tensors |= {f"midlayer.self_attn.{n}_norm.weight": sharp.clone() for n in "qk"}
    for i in range(1, kind.layers):
        tensors |= _upper(f"layers.{i}", kind, shape, new)
    write_folder(pair.draft, config, tensors)
    return pair


def _sharp_latent(shape: TinyShape) -> dict[str, Tensor]:
    """Dimension 0 of every embedding is 1: it makes all queries and all rotated keys equal, so that
    a row scores highest with itself. Latents are the embedding, values ``GAIN`` times it."""
    a, h, heads = "midlayer.self_attn", shape.hidden, shape.heads
    down = torch.zeros(Q_RANK, 2 * h)
    down[0, 0] = 1.0
    up = torch.zeros(heads, NOPE + ROPE, Q_RANK)
    up[:, NOPE:, 0] = SHARP * Q_RANK**-0.5
    both = torch.zeros(h + ROPE, 2 * h)
    both[:h, :h] = torch.eye(h)
    both[h:, 0] = SHARP
    keys_and_values = torch.zeros(heads, NOPE + h // heads, h)
    keys_and_values[:, NOPE:] = GAIN * torch.eye(h).view(heads, -1, h)
    return {
        f"{a}.q_a_proj.weight": down,
        f"{a}.q_a_layernorm.weight": torch.ones(Q_RANK),
        f"{a}.q_b_proj.weight": up.flatten(0, 1),
        f"{a}.kv_a_proj_with_mqa.weight": both,
        f"{a}.kv_a_layernorm.weight": torch.ones(h),
        f"{a}.kv_b_proj.weight": keys_and_values.flatten(0, 1),
        f"{a}.o_proj.weight": torch.eye(h),
    }


def _upper(at: str, kind: Kind, shape: TinyShape, new: Any) -> dict[str, Tensor]:
    h = shape.hidden
    value = h // shape.heads
    tensors = attention(at, kind, shape, new, h, value=value, kv_rank=h)
    tensors[f"{at}.self_attn.o_proj.weight"] *= SMALL
    return tensors | {
        f"{at}.input_layernorm.weight": new(h),
        f"{at}.post_attention_layernorm.weight": new(h),
        f"{at}.mlp.gate_proj.weight": new(shape.inner, h),
        f"{at}.mlp.up_proj.weight": new(shape.inner, h),
        f"{at}.mlp.down_proj.weight": SMALL * new(h, shape.inner),
    }
