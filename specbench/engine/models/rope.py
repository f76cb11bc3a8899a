"""Frequencies of rotary embedding, plain or scaled (Hugging Face ``modeling_rope_utils``)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specbench.modelspec import RopeScaling, RopeSpec


def frequencies(rope: RopeSpec, head_dim: int) -> Tensor:
    """Radians per position of each rotated pair, float64 [d/2] on the CPU."""
    dim = rope.dim or head_dim
    even = torch.arange(0, dim, 2, dtype=torch.float64)
    plain = rope.theta ** -(even / dim)
    scaling = rope.scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(plain, scaling)
    return _yarn(plain, scaling, dim, rope.theta)


def factors(rope: RopeSpec) -> tuple[float, float]:
    """What rotations, and besides them scores, are multiplied by."""
    scaling = rope.scaling
    return (1.0, 1.0) if scaling is None else (scaling.attention_factor, scaling.score_factor)


def _llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Long waves are stretched, short ones kept, and those between blended."""
    turns = scaling.original * plain / (2 * math.pi)  # of the pair over the first length
    blend = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return plain / scaling.factor * (1 - blend) + plain * blend


def _yarn(plain: Tensor, scaling: RopeScaling, dim: int, theta: float) -> Tensor:
    """Pairs with fewer than ``low`` turns over the first length are stretched, those with more
    than ``high`` kept; a ramp over the dimensions between (YaRN, section 3.2)."""

    def dimension(turns: float) -> float:
        return dim * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = dimension(scaling.high), dimension(scaling.low)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = last - first or 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - first) / width).clamp(0, 1)
    return plain / scaling.factor * ramp + plain * (1 - ramp)
