"""Drafts of every kind by the words of engine-spec 2.1, 1.5 and 12.2, apart from the engine.

Whole sequences in float64, no cache, no fused weights. Tensor names are those of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    scaling: Mapping[str, Any] = field(default_factory=dict)


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
    if "fc.weight" not in t:
        return features
    return features @ t["fc.weight"].T + t.get("fc.bias", torch.zeros(()))


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
    a, dim = f"{at}.self_attn", rules.head_dim
    mixed = []
    for head in range(rules.heads):
        kv = head * rules.kv_heads // rules.heads
        q, k, v = (
            _one_head(t, f"{a}.{n}", i, rules) for n, i in (("q", head), ("k", kv), ("v", kv))
        )
        mixed.append(_mix(_turn_halves(q(x), rules), _turn_halves(k(x), rules), v(x), dim**-0.5))
    out = torch.cat(mixed, 1) @ t[f"{a}.o_proj.weight"].T
    return out + t.get(f"{a}.o_proj.bias", torch.zeros(()))


def _one_head(t: T, name: str, index: int, rules: Rules) -> Any:
    """Projection, bias and norm of one head: Qwen3 norms each query and key head by itself."""
    rows = slice(index * rules.head_dim, (index + 1) * rules.head_dim)

    def project(x: Tensor) -> Tensor:
        y = x @ t[f"{name}_proj.weight"][rows].T
        if f"{name}_proj.bias" in t:
            y = y + t[f"{name}_proj.bias"][rows]
        norm = f"{name}_norm.weight"
        return rms(y, t[norm], rules.eps) if norm in t else y

    return project


def _latent(t: T, rules: Rules, at: str, x: Tensor) -> Tensor:
    a, rows = f"{at}.self_attn", x.shape[0]
    if f"{a}.q_proj.weight" in t:
        q = x @ t[f"{a}.q_proj.weight"].T
    else:
        low_q = rms(x @ t[f"{a}.q_a_proj.weight"].T, t[f"{a}.q_a_layernorm.weight"], rules.eps)
        q = low_q @ t[f"{a}.q_b_proj.weight"].T
    q = q.view(rows, rules.heads, -1)
    both = x @ t[f"{a}.kv_a_proj_with_mqa.weight"].T
    low, k_rope = both[:, : -rules.rope], both[:, -rules.rope :]
    low = rms(low, t[f"{a}.kv_a_layernorm.weight"], rules.eps)
    kv = (low @ t[f"{a}.kv_b_proj.weight"].T).view(rows, rules.heads, -1)
    k_rope = _turn_pairs(k_rope, rules)
    scale = (rules.nope + rules.rope) ** -0.5 * _score_factor(rules.scaling)
    mixed = []
    for head in range(rules.heads):
        q_rope = _turn_pairs(q[:, head, rules.nope :], rules)
        query = torch.cat([q[:, head, : rules.nope], q_rope], 1)
        key = torch.cat([kv[:, head, : rules.nope], k_rope], 1)
        mixed.append(_mix(query, key, kv[:, head, rules.nope :], scale))
    return torch.cat(mixed, 1) @ t[f"{a}.o_proj.weight"].T


def _mix(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    scores, rows = q @ k.T * scale, q.shape[0]
    later = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    weights: Tensor = scores.masked_fill(later, float("-inf")).softmax(-1)
    return weights @ v


def _angles(rows: int, dim: int, rules: Rules) -> Tensor:
    turns = [_frequency(i, dim, rules.theta, rules.scaling) for i in range(dim // 2)]
    places = torch.arange(rows, dtype=torch.float64)
    return places[:, None] * torch.tensor(turns, dtype=torch.float64)


def _turn_halves(x: Tensor, rules: Rules) -> Tensor:
    a, factor = _angles(x.shape[0], x.shape[1], rules), _turn_factor(rules.scaling)
    left, right = x.chunk(2, 1)
    turned = [left * a.cos() - right * a.sin(), right * a.cos() + left * a.sin()]
    return factor * torch.cat(turned, 1)


def _turn_pairs(x: Tensor, rules: Rules) -> Tensor:
    a, factor = _angles(x.shape[0], x.shape[1], rules), _turn_factor(rules.scaling)
    even, odd = x[:, 0::2], x[:, 1::2]
    turned = (even * a.cos() - odd * a.sin(), odd * a.cos() + even * a.sin())
    return factor * torch.stack(turned, 2).flatten(1)


def _frequency(pair: int, dim: int, theta: float, scaling: Mapping[str, Any]) -> float:
    """Radians per position of one pair under ``rope_scaling`` (engine-spec 12.3; Llama 3.1)."""
    plain = float(theta ** (-2 * pair / dim))
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return plain / float(scaling["factor"])
    if kind == "llama3":
        wave, first = 2 * math.pi / plain, scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if wave < first / high:
            return plain
        if wave > first / low:
            return plain / float(scaling["factor"])
        smooth = (first / wave - low) / (high - low)
        return float((1 - smooth) * plain / scaling["factor"] + smooth * plain)
    if kind == "yarn":
        first = scaling["original_max_position_embeddings"]
        ends = []
        for turns in (scaling.get("beta_fast", 32), scaling.get("beta_slow", 1)):
            ends.append(dim * math.log(first / (turns * 2 * math.pi)) / (2 * math.log(theta)))
        begin, end = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), dim - 1)
        ramp = min(max((pair - begin) / max(end - begin, 0.001), 0.0), 1.0)
        return float(plain * (1 - ramp) + plain / scaling["factor"] * ramp)
    return plain


def _mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _turn_factor(scaling: Mapping[str, Any]) -> float:
    """What yarn multiplies cosine and sine by."""
    if scaling.get("rope_type", scaling.get("type")) != "yarn":
        return 1.0
    factor, weight = scaling["factor"], scaling.get("mscale_all_dim")
    if weight and scaling.get("mscale"):
        return _mscale(factor, scaling["mscale"]) / _mscale(factor, weight)
    return _mscale(factor, 1.0)


def _score_factor(scaling: Mapping[str, Any]) -> float:
    """DeepSeek's mscale squared, on scores."""
    weight = scaling.get("mscale_all_dim")
    return _mscale(scaling["factor"], weight) ** 2 if weight else 1.0
