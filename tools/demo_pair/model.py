"""Compact training models: a Llama target and a one-layer EAGLE-3 draft.

Only what training needs: full-sequence forwards in torch, plus a KV cache on
the target for batched generation. Parameter names follow the files that are
exported, so a state dict is the checkpoint.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

Cache = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Shape:
    """Sizes of the pair; the defaults are the shipped one."""

    vocab: int = 4096
    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    inner: int = 704
    theta: float = 10000.0
    eps: float = 1e-5
    capture: tuple[int, ...] = (2, 4, 7)
    draft_vocab: int = 1536
    max_positions: int = 2048

    def as_dict(self) -> dict[str, object]:
        """Plain mapping for saving beside a checkpoint."""
        return asdict(self)


def rope_tables(shape: Shape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables of Llama's half-split rotary embedding."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = positions.float()[..., None] * (1.0 / shape.theta**half)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of ``x`` [..., length, head_dim]."""
    left, right = x.chunk(2, dim=-1)
    turned = torch.cat([-right, left], dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in fp32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Grouped-query projections; the callers do the attending."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(width, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def qkv(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values: [batch, heads, length, head_dim]."""
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.shape.heads, -1).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.shape.kv_heads, -1).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.shape.kv_heads, -1).transpose(1, 2)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def merge(self, a: Tensor) -> Tensor:
        """Join the heads and project back to the residual width."""
        batch, _, length, _ = a.shape
        joined: Tensor = self.o_proj(a.transpose(1, 2).reshape(batch, length, -1))
        return joined


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Gate, multiply, project down."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """One pre-norm decoder layer of the target."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape, shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """Return the new residual stream of whole sequences."""
        q, k, v = self.self_attn.qkv(self.input_layernorm(x), *rope)
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        x = x + self.self_attn.merge(
            functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        )
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Target(nn.Module):
    """Llama with tied embeddings; names are those of the exported file without ``model.``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = RMSNorm(shape.hidden, shape.eps)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)

    def hidden(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Final normed states and the captured features g, for whole sequences."""
        rope = rope_tables(self.shape, torch.arange(ids.shape[1]))
        x = self.embed_tokens(ids)
        features = []
        for index, block in enumerate(self.layers):
            if index in self.shape.capture:
                features.append(x)
            x = block(x, rope)
        return self.norm(x), torch.cat(features, dim=-1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary scores (tied embedding)."""
        return functional.linear(hidden, self.embed_tokens.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of whole sequences."""
        return self.logits(self.hidden(ids)[0])

    def extend(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: Cache, at: int) -> Tensor:
        """Write keys and values at column ``at`` of the cache; logits of each sequence's last row.

        ``mask`` [batch, rows, at + rows] says which columns each row sees.
        """
        cos, sin = rope_tables(self.shape, positions)
        rope, end = (cos[:, None], sin[:, None]), at + ids.shape[1]
        x = self.embed_tokens(ids)
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            block = cast(Block, layer)
            q, k, v = block.self_attn.qkv(block.input_layernorm(x), *rope)
            keys[:, :, at:end], values[:, :, at:end] = k, v
            x = x + block.self_attn.merge(
                _grouped(q, keys[:, :, :end], values[:, :, :end], mask[:, None])
            )
            x = x + block.mlp(block.post_attention_layernorm(x))
        return self.logits(self.norm(x[:, -1]))


def _grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Grouped-query attention; a single row's query heads are rows of their key head, uncopied."""
    groups = q.shape[1] // k.shape[1]
    if q.shape[2] > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    rows = q.view(q.shape[0], k.shape[1], groups, q.shape[3])
    return functional.scaled_dot_product_attention(rows, k, v, attn_mask=mask).view(q.shape)


class DraftLayer(nn.Module):
    """The draft's layer: attention reads [embedding ; hidden], the residual only hidden."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape, 2 * shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = MLP(shape)

    def mixed(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """Attention input, embedding half first."""
        return torch.cat([self.input_layernorm(embedded), self.hidden_norm(hidden)], dim=-1)

    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Residual from the un-normed hidden state, then the MLP."""
        x = hidden + self.self_attn.merge(attended)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Draft(nn.Module):
    """One-layer EAGLE-3 draft over a reduced vocabulary; shares the target's embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.capture) * shape.hidden, shape.hidden, bias=False)
        self.midlayer = DraftLayer(shape)
        self.norm = RMSNorm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocab, bias=False)

    def unroll(self, embedded: list[Tensor], features: Tensor) -> list[Tensor]:
        """Training-time test: logits of every step for every row.

        ``embedded[s]`` holds the embedding of the token given to each row at
        step s. Step s attends to step-0 keys of rows up to its own, and to
        its own keys of steps 1..s. Rotary position is row + step.
        """
        layer = self.midlayer
        hidden, length = self.fc(features), features.shape[1]
        groups = self.shape.heads // self.shape.kv_heads
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        base_k = base_v = features
        own: list[tuple[Tensor, Tensor]] = []
        logits: list[Tensor] = []
        for step, embedding in enumerate(embedded):
            rope = rope_tables(self.shape, torch.arange(length) + step)
            q, k, v = layer.self_attn.qkv(layer.mixed(embedding, hidden), *rope)
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
            if step == 0:
                base_k, base_v = k, v
                a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                own.append((k, v))
                a = _chain_attention(q, base_k, base_v, own, causal)
            hidden = layer.finish(hidden, a)
            logits.append(self.lm_head(self.norm(hidden)))
        return logits


def _chain_attention(
    q: Tensor, base_k: Tensor, base_v: Tensor, own: list[tuple[Tensor, Tensor]], causal: Tensor
) -> Tensor:
    """Attend to committed rows (causal) and to the row's own earlier draft steps (diagonal)."""
    scale = q.shape[-1] ** -0.5
    scores = (q @ base_k.transpose(-1, -2) * scale).masked_fill(~causal, float("-inf"))
    tails = [(q * k).sum(-1, keepdim=True) * scale for k, _ in own]
    weights = torch.cat([scores, *tails], dim=-1).float().softmax(-1).to(q.dtype)
    length = base_k.shape[2]
    out = weights[..., :length] @ base_v
    for index, (_, v) in enumerate(own):
        out = out + weights[..., length + index, None] * v
    return out


def rows_logits(
    draft: Draft, embedding: Tensor, features: Tensor, steps: int, ids: Tensor
) -> list[Tensor]:
    """Unroll with teacher-forced tokens: step s of row i reads token x[i+1+s]."""
    rows = ids.shape[1] - 1
    padded = functional.pad(ids, (0, steps))
    tokens = [padded[:, 1 + s : 1 + s + rows] for s in range(steps)]
    return draft.unroll([functional.embedding(t, embedding) for t in tokens], features[:, :rows])
