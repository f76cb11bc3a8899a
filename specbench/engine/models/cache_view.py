"""The cache as any attention sees it in one forward: rotate, store, score, mix.

The general counterpart of ``attention``: query, key and value may differ in width, only a part of
a head may be rotated, layers may have sliding windows, heads may have sinks. Softmax is done in
float32 or wider.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specbench.engine.models.base import Span
from specbench.engine.models.layers import WIDE
from specbench.errors import EngineError


class CacheView:
    """One forward over R rows of B lanes."""

    def __init__(self, span: Span, batch: int, rows: int) -> None:
        """``rows`` is R, all lanes together."""
        self._span, self._batch, self._rows = span, batch, rows // batch
        self._turn_q = span.turn_q.reshape(rows, 1, -1)
        self._turn_k = span.turn_k.reshape(rows, 1, -1)
        self._masks: dict[int, Tensor] = {}

    def turn_queries(self, x: Tensor) -> Tensor:
        """Rotate adjacent pairs of queries [R, heads, d]; the factor of scores is in as well."""
        return _turned(x, self._turn_q)

    def turn_keys(self, x: Tensor) -> Tensor:
        """Rotate adjacent pairs of keys [R, heads, d]."""
        return _turned(x, self._turn_k)

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put keys [R, Hkv, Dk] and values [R, Hkv, Dv] of all rows into their slots."""
        span = self._span
        if span.slots is None:
            slot = span.key_slots[layer]
            (torch.view_as_real(slot).flatten(-2) if slot.is_complex() else slot).copy_(keys)
            span.value_slots[layer].copy_(values)
            return
        span.flat_keys[layer].index_put_((span.slots,), keys)
        span.flat_values[layer].index_put_((span.slots,), values)

    def mix(
        self, layer: int, queries: Tensor, window: int | None = None, sinks: Tensor | None = None
    ) -> Tensor:
        """Values mixed [R, heads, Dv] for ``queries`` [R, heads, Dk] with the factor of scores in.

        Args:
            layer: whose cache.
            queries: heads that share a key head stand together.
            window: how many columns a row sees back, itself included; None for all.
            sinks: a score per head that takes part in the softmax and mixes nothing.
        """
        keys, values = self._span.keys[layer], self._span.values[layer]
        lanes, rows = self._batch, self._rows
        kv = keys.shape[0] // lanes
        q = queries.view(lanes, rows, kv, -1, queries.shape[-1]).permute(0, 2, 3, 1, 4)
        group = q.shape[2]
        q = q.reshape(lanes * kv, group * rows, -1)
        mask = self._mask(window, keys.shape[-1])
        if queries.dtype in WIDE or sinks is not None:
            mixed = self._plain(q, keys, values, mask, sinks)
        else:
            mixed = self._fused(q, keys, values, mask)
        mixed = mixed.view(lanes, kv, group, rows, -1).permute(0, 3, 1, 2, 4)
        return mixed.reshape(lanes * rows, kv * group, -1)

    def _plain(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sinks: Tensor | None
    ) -> Tensor:
        scores = torch.bmm(q, keys)
        wide = scores if scores.dtype in WIDE else scores.float()
        wide = wide.view(self._batch, -1, self._rows, keys.shape[-1])
        if mask is not None:
            wide = wide + mask
        if sinks is not None:
            column = sinks.to(wide)[None, :, None, None].expand(*wide.shape[:3], 1)
            shares = torch.softmax(torch.cat([wide, column], -1), -1)[..., :-1]
        else:
            shares = torch.softmax(wide, -1)
        return torch.bmm(shares.to(q.dtype).reshape_as(scores), values)

    def _fused(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Half precision: torch's fused call, which keeps scores in float32."""
        if mask is not None:
            mask = mask.to(q.dtype).expand(self._batch, 1, -1, -1)
            mask = mask.repeat(1, 1, q.shape[1] // self._rows, 1)
        q, keys, values = (
            x.reshape(self._batch, -1, *x.shape[1:]) for x in (q, keys.transpose(1, 2), values)
        )
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=1.0)
        return mixed.flatten(0, 1)

    def _mask(self, window: int | None, columns: int) -> Tensor | None:
        """The span's mask, with all columns out of a layer's window closed as well."""
        given = self._span.mask
        if window is None:
            return given
        if window not in self._masks:
            closed = self._outside(window, columns)
            base = torch.zeros((), dtype=self._span.keys[0].dtype, device=closed.device)
            base = base if given is None else given
            self._masks[window] = base.masked_fill(closed[:, None], float("-inf"))
        return self._masks[window]

    def _outside(self, window: int, columns: int) -> Tensor:
        """Which columns stand ``window`` or more positions before a row, bool [B, T, L].

        A committed column's position is its slot; the columns behind are the rows of this forward,
        whose positions are not their slots in a tree.
        """
        positions = self._span.positions
        if positions is None:
            raise EngineError("a layer with a sliding window was run without positions.")
        slots = torch.arange(columns, device=positions.device)[None]
        behind = slots - positions[:, :1]
        own = positions.gather(1, behind.clamp(0, self._rows - 1).expand(self._batch, columns))
        places = torch.where(behind < 0, slots, own)
        return places[:, None] <= positions[:, :, None] - window


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    wide = x if x.dtype in WIDE else x.float()
    pairs = torch.view_as_complex(torch.unflatten(wide, -1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)
