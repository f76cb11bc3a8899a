"""A slow, plain model of engine-spec 2 and 3, written apart from the engine, to test it against.

Whole sequences, no cache, half-split rotation, no folding, one row at a time where that is
clearer. Everything in float64.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.tiny import TinyPair, TinyShape


def load(folder: Path) -> dict[str, Tensor]:
    """Tensors in float64 (maps as they are)."""
    tensors = load_file(folder / "model.safetensors")
    return {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm."""
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def rope(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Half-split rotation of [rows, heads, D]."""
    dim = x.shape[-1]
    inverse = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = positions.double()[:, None] * inverse
    cos, sin = (torch.cat([f(angles)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def attention(
    t: dict[str, Tensor], at: str, shape: TinyShape, x: Tensor, positions: Tensor, seen: Tensor
) -> Tensor:
    """Grouped-query attention of rows ``x`` [T, in] among themselves; seen [T, T]."""
    rows = x.shape[0]
    q, k, v = (
        (x @ t[f"{at}.self_attn.{n}_proj.weight"].T).view(rows, -1, shape.head_dim) for n in "qkv"
    )
    q, k = rope(q, positions, shape.theta), rope(k, positions, shape.theta)
    group = shape.heads // shape.kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * shape.head_dim**-0.5
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    mixed = torch.einsum("hqk,khd->qhd", weights, v).reshape(rows, -1)
    return mixed @ t[f"{at}.self_attn.o_proj.weight"].T


def mlp(t: dict[str, Tensor], at: str, x: Tensor) -> Tensor:
    """SwiGLU."""
    gate = torch.nn.functional.silu(x @ t[f"{at}.mlp.gate_proj.weight"].T)
    return (gate * (x @ t[f"{at}.mlp.up_proj.weight"].T)) @ t[f"{at}.mlp.down_proj.weight"].T


class Reference:
    """Target and draft of a tiny pair."""

    def __init__(self, pair: TinyPair) -> None:
        self.shape = pair.shape
        self.t, self.d = load(pair.target), load(pair.draft)
        self.embedding = self.t["model.embed_tokens.weight"]
        ids = torch.arange(pair.shape.draft_vocab)
        self.target_ids = ids + self.d["d2t"]

    def target(self, tokens: list[int]) -> tuple[Tensor, list[Tensor]]:
        """Logits [S, V] and the residual stream at every physical index 0..n, each [S, H]."""
        rows, eps = len(tokens), self.shape.eps
        seen = torch.ones(rows, rows, dtype=torch.bool).tril()
        positions = torch.arange(rows)
        x = self.embedding[torch.tensor(tokens)]
        stream = [x]
        for i in range(self.shape.layers):
            at = f"model.layers.{i}"
            normed = rms(x, self.t[f"{at}.input_layernorm.weight"], eps)
            x = x + attention(self.t, at, self.shape, normed, positions, seen)
            x = x + mlp(self.t, at, rms(x, self.t[f"{at}.post_attention_layernorm.weight"], eps))
            stream.append(x)
        head = self.embedding if self.shape.tied else self.t["lm_head.weight"]
        return rms(x, self.t["model.norm.weight"], eps) @ head.T, stream

    def features(self, tokens: list[int]) -> Tensor:
        """g of every position [S, A·H]."""
        stream = self.target(tokens)[1]
        return torch.cat([stream[k] for k in sorted(self.shape.capture)], -1)

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """Plain greedy continuation."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.target(tokens)[0][-1].argmax()))
        return tokens[len(prompt) :]

    def layer(
        self, tokens: Tensor, hidden: Tensor, positions: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The draft's layer over rows: pre-norm output [T, H] and logits [T, Vd] (2.1)."""
        d, at, eps = self.d, "midlayer", self.shape.eps
        e = rms(self.embedding[tokens], d[f"{at}.input_layernorm.weight"], eps)
        x = torch.cat([e, rms(hidden, d[f"{at}.hidden_norm.weight"], eps)], -1)
        r = hidden + attention(d, at, self.shape, x, positions, seen)
        out = r + mlp(d, at, rms(r, d[f"{at}.post_attention_layernorm.weight"], eps))
        return out, rms(out, d["norm.weight"], eps) @ d["lm_head.weight"].T

    def draft_logits(self, tokens: list[int], path: list[int]) -> Tensor:
        """Draft logits [Vd] after committed ``tokens`` and drafted ``path``: all recomputed.

        Rows 0..S-2 pair token i+1 with g_i at position i; row S-2+j pairs path[j-1] with the
        state of the row before it (2.4, 2.5).
        """
        committed = len(tokens) - 1
        hidden = self.features(tokens[:-1]) @ self.d["fc.weight"].T
        rows = torch.tensor(tokens[1:])
        for token in [*path, None]:
            count = rows.shape[0]
            seen = torch.ones(count, count, dtype=torch.bool).tril()
            out, logits = self.layer(rows, hidden, torch.arange(count), seen)
            if token is None:
                return logits[-1]
            rows = torch.cat([rows, torch.tensor([token])])
            hidden = torch.cat([hidden, out[-1:]])
        assert committed >= 1
        raise AssertionError("unreachable")

    def chain(self, tokens: list[int], steps: int) -> list[int]:
        """Greedy chain of ``steps`` draft tokens (target ids)."""
        path: list[int] = []
        for _ in range(steps):
            path.append(int(self.target_ids[self.draft_logits(tokens, path).argmax()]))
        return path
