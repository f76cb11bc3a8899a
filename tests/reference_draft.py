"""Drafts of every kind by the words of engine-spec 2.1, 1.5 and 12.2, apart from the engine.

Whole sequences in float64, no cache, no fused weights. Tensor names are those of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference import rms

T = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a draft's config says; widths come from the tensors."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float
    first: str = "midlayer"
    layers: int = 1
    upper_norm: str = "input_layernorm"
    norm_before_residual: bool = False
    norm_output: bool = False
    nope: int = 0
    rope: int = 0
    value: int = 0
    target_norm: Tensor | None = None


def combine(t: T, rules: Rules, features: Tensor) -> Tensor:
    """Step 2: target features [T, A·Ht] to h [T, H]."""
    if rules.target_norm is not None:
        features = rms(features, rules.target_norm, rules.eps)
    if "input_norm.weight" in t:
        features = rms(features, t["input_norm.weight"], rules.eps)
    count = sum(name.startswith("fc_norm.") for name in t)
    if count:
        width = features.shape[1] // count
        parts = [features[:, j * width : (j + 1) * width] for j in range(count)]
        features = torch.cat(
            [rms(part, t[f"fc_norm.{j}.weight"], rules.eps) for j, part in enumerate(parts)], 1
        )
    return features @ t["fc.weight"].T if "fc.weight" in t else features


def forward(t: T, rules: Rules, embedded: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Steps 3 to 9 over rows at positions 0..: recurrent state [T, H] and logits [T, Vd]."""
    at = rules.first
    hn = rms(h, t[f"{at}.hidden_norm.weight"], rules.eps)
    r = hn if rules.norm_before_residual else h
    e = rms(embedded, t[f"{at}.input_layernorm.weight"], rules.eps)
    out = _rest(t, rules, at, r, torch.cat([e, hn], 1))
    for i in range(1, rules.layers):
        normed = rms(out, t[f"layers.{i}.{rules.upper_norm}.weight"], rules.eps)
        out = _rest(t, rules, f"layers.{i}", out, normed)
    normed = rms(out, t["norm.weight"], rules.eps)
    return (normed if rules.norm_output else out), normed @ t["lm_head.weight"].T


def _rest(t: T, rules: Rules, at: str, r: Tensor, x: Tensor) -> Tensor:
    r2 = r + (_latent if rules.rope else _heads)(t, rules, at, x)
    m = rms(r2, t[f"{at}.post_attention_layernorm.weight"], rules.eps)
    gate = m @ t[f"{at}.mlp.gate_proj.weight"].T
    up = m @ t[f"{at}.mlp.up_proj.weight"].T
    return r2 + (gate * torch.sigmoid(gate) * up) @ t[f"{at}.mlp.down_proj.weight"].T


def _heads(t: T, rules: Rules, at: str, x: Tensor) -> Tensor:
    rows, dim = x.shape[0], rules.head_dim
    mixed = []
    for head in range(rules.heads):
        kv = head * rules.kv_heads // rules.heads
        q, k, v = (
            x @ t[f"{at}.self_attn.{n}_proj.weight"][i * dim : (i + 1) * dim].T
            for n, i in (("q", head), ("k", kv), ("v", kv))
        )
        q, k = (_turn_halves(y, rules.theta) for y in (q, k))
        mixed.append(_mix(q, k, v, dim, rows))
    return torch.cat(mixed, 1) @ t[f"{at}.self_attn.o_proj.weight"].T


def _latent(t: T, rules: Rules, at: str, x: Tensor) -> Tensor:
    a, rows = f"{at}.self_attn", x.shape[0]
    low_q = rms(x @ t[f"{a}.q_a_proj.weight"].T, t[f"{a}.q_a_layernorm.weight"], rules.eps)
    q = (low_q @ t[f"{a}.q_b_proj.weight"].T).view(rows, rules.heads, -1)
    both = x @ t[f"{a}.kv_a_proj_with_mqa.weight"].T
    low, k_rope = both[:, : -rules.rope], both[:, -rules.rope :]
    low = rms(low, t[f"{a}.kv_a_layernorm.weight"], rules.eps)
    kv = (low @ t[f"{a}.kv_b_proj.weight"].T).view(rows, rules.heads, -1)
    k_rope = _turn_pairs(k_rope, rules.theta)
    mixed = []
    for head in range(rules.heads):
        q_rope = _turn_pairs(q[:, head, rules.nope :], rules.theta)
        query = torch.cat([q[:, head, : rules.nope], q_rope], 1)
        key = torch.cat([kv[:, head, : rules.nope], k_rope], 1)
        mixed.append(_mix(query, key, kv[:, head, rules.nope :], rules.nope + rules.rope, rows))
    return torch.cat(mixed, 1) @ t[f"{a}.o_proj.weight"].T


def _mix(q: Tensor, k: Tensor, v: Tensor, width: int, rows: int) -> Tensor:
    scores = q @ k.T / width**0.5
    later = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    weights: Tensor = scores.masked_fill(later, float("-inf")).softmax(-1)
    return weights @ v


def _angles(rows: int, dim: int, theta: float) -> Tensor:
    pairs = torch.arange(dim // 2, dtype=torch.float64)
    return torch.arange(rows, dtype=torch.float64)[:, None] / theta ** (2 * pairs / dim)


def _turn_halves(x: Tensor, theta: float) -> Tensor:
    a = _angles(x.shape[0], x.shape[1], theta)
    left, right = x.chunk(2, 1)
    return torch.cat([left * a.cos() - right * a.sin(), right * a.cos() + left * a.sin()], 1)


def _turn_pairs(x: Tensor, theta: float) -> Tensor:
    a = _angles(x.shape[0], x.shape[1], theta)
    even, odd = x[:, 0::2], x[:, 1::2]
    turned = (even * a.cos() - odd * a.sin(), odd * a.cos() + even * a.sin())
    return torch.stack(turned, 2).flatten(1)
