"""Attention of few rows over cached keys: store the new keys, score, mix.

Query heads that share a key head are stacked as extra rows, so grouped-query attention needs no
repeated keys. Softmax is done in float32 or wider.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specbench.engine.models.base import Span
from specbench.engine.models.layers import WIDE, Scratch, rotate


def attention_call(dtype: torch.dtype) -> str:
    """Name of the attention call that runs for ``dtype``; part of a run's provenance."""
    return "bmm+softmax" if dtype in WIDE else "scaled_dot_product_attention"


def store(scratch: Scratch, span: Span, layer: int) -> None:
    """Rotate the new keys and put keys and values of ``scratch.qkv`` into their cache slots."""
    if span.slots is None:
        rotate(scratch.k_in, span.turn_k, span.key_slots[layer])
        span.value_slots[layer].copy_(scratch.v_in)
        return
    rotate(scratch.k_in, span.turn_k, scratch.k_out)
    span.flat_keys[layer].index_put_((span.slots,), scratch.k)
    span.flat_values[layer].index_put_((span.slots,), scratch.v_in)


def attend(scratch: Scratch, span: Span, layer: int) -> Tensor:
    """Mix of values [R, heads·D] for the queries in ``scratch.qkv``; keys must be stored."""
    rotate(scratch.q_in, span.turn_q, scratch.q_out)
    if scratch.paired:
        scores = torch.bmm(scratch.q, span.keys[layer])
        if span.mask is not None:
            scores.view(scratch.score_shape).add_(span.mask)
        torch.bmm(torch.softmax(scores, -1), span.values[layer], out=scratch.heads)
    else:
        scratch.heads.copy_(_fused(scratch, span, layer))
    if scratch.rows > 1:
        scratch.merged_heads.copy_(scratch.heads_by_row)
    return scratch.merged


def _fused(scratch: Scratch, span: Span, layer: int) -> Tensor:
    """Half precision: torch's fused call, which keeps scores in float32."""
    batch = scratch.score_shape[0]
    mask = span.mask
    if mask is not None:
        mask = mask.to(scratch.q.dtype).repeat(1, 1, scratch.q.shape[1] // scratch.rows, 1)
    q, keys, values = (
        x.reshape(batch, -1, *x.shape[1:])
        for x in (scratch.q, span.keys[layer].transpose(1, 2), span.values[layer])
    )
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=1.0).flatten(0, 1)
