"""Key/value slots: one lane of contiguous slots per running sequence, shared by target and draft.

Slot of sequence position i in lane l is l · capacity + i (page size 1), in the target's pool and in
the draft's pool alike (engine-spec 2.7). Lanes are kept dense: the running sequences hold lanes
0..B-1, so the cache of a batch is a view, never a gather. Slots at and beyond ``committed`` are
speculative: they are overwritten by the next step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specbench.engine.models.base import Span
from specbench.engine.models.layers import WIDE, Rope

Turn = tuple[Tensor, Tensor]
Views = tuple[Tensor, ...]
MAX_KEPT_VIEWS = 2048


class KVPool:
    """Keys and values of one model: [layers, lanes, Hkv, capacity, D] each.

    ``value_dim`` is the width of a value where it is not that of a key (latent attention).
    """

    def __init__(
        self,
        *,
        layers: int,
        lanes: int,
        kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        value_dim: int | None = None,
    ) -> None:
        size = (layers, lanes, kv_heads, capacity, head_dim)
        # zeros, not empty: a masked column still multiplies its value by 0, and 0 · NaN is NaN
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros((*size[:-1], value_dim or head_dim), dtype=dtype, device=device)
        self.lanes, self.capacity, self.device = lanes, capacity, device
        paired = self.keys
        if dtype in WIDE:
            paired = torch.view_as_complex(self.keys.view(*size[:-1], -1, 2))
        # views of single lanes, made once: [layers, Hkv, D, cap], [layers, Hkv, cap, D], by slot
        self._columns = [self.keys[:, lane].transpose(-1, -2) for lane in range(lanes)]
        self._mixed = [self.values[:, lane] for lane in range(lanes)]
        self._key_rows = [paired[:, lane].transpose(1, 2) for lane in range(lanes)]
        self._value_rows = [self.values[:, lane].transpose(1, 2) for lane in range(lanes)]
        self._flat_keys = tuple(self.keys.flatten(1, 3).unbind(0))
        self._flat_values = tuple(self.values.flatten(1, 3).unbind(0))
        first = torch.arange(lanes * kv_heads, device=device) * capacity
        self._first_row = first.view(lanes, 1, kv_heads)
        self._kept_views: dict[tuple[int, int, int], tuple[Views, Views, Views, Views]] = {}

    def one_lane(
        self, lane: int, slot: int, rows: int, turn: Turn, mask: Tensor | None = None
    ) -> Span:
        """Rows in slots ``slot .. slot + rows - 1`` of one lane, seeing all columns before them.

        The exact-length form: nothing is padded, so short sequences read little cache.
        """
        keys, values, key_slots, value_slots = self._views(lane, slot, rows)
        return Span(
            turn_q=turn[0],
            turn_k=turn[1],
            keys=keys,
            values=values,
            mask=mask,
            key_slots=key_slots,
            value_slots=value_slots,
        )

    def _views(self, lane: int, slot: int, rows: int) -> tuple[Views, Views, Views, Views]:
        """The views of a span by layer. Requests pass the same places again and again, and making
        32 views costs as much as a layer, so they are kept."""
        key = (lane, slot, rows)
        if key not in self._kept_views:
            if len(self._kept_views) >= MAX_KEPT_VIEWS:
                self._kept_views.clear()
            self._kept_views[key] = (
                self._columns[lane].narrow(-1, 0, slot + rows).unbind(0),
                self._mixed[lane].narrow(2, 0, slot + rows).unbind(0),
                self._key_rows[lane].narrow(1, slot, rows).unbind(0),
                self._value_rows[lane].narrow(1, slot, rows).unbind(0),
            )
        return self._kept_views[key]

    def batch(self, slots: Tensor, length: int, turn: Turn, mask: Tensor | None) -> Span:
        """Rows of lanes 0..B-1 in ``slots`` [B, T], seeing the first ``length`` columns by mask.

        With ``length`` fixed, shapes depend on nothing but B and T: the form that is captured.
        """
        lanes, rows = slots.shape
        turn_q, turn_k = turn
        places = self._first_row[:lanes] + slots[:, :, None]
        keys = self.keys[:, :lanes, :, :length].flatten(1, 2).transpose(-1, -2)
        return Span(
            turn_q=turn_q.view(lanes, rows, 1, 1, -1),
            turn_k=turn_k,
            keys=keys.unbind(0),
            values=self.values[:, :lanes, :, :length].flatten(1, 2).unbind(0),
            mask=mask,
            slots=places.view(lanes * rows, -1),
            flat_keys=self._flat_keys,
            flat_values=self._flat_values,
        )

    def keep(self, lane: int, start: int, path: Sequence[int]) -> None:
        """Move the rows ``start + path[j]`` to ``start + j``: an accepted tree path (6.6).

        Keys were rotated for position start + depth, which is where they end, so they stay valid.
        """
        if all(node == j for j, node in enumerate(path)):
            return
        source = torch.tensor(path, device=self.device) + start
        for pool in (self.keys, self.values):
            block = pool[:, lane]
            block[:, :, start : start + len(path)] = block.index_select(2, source)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` slots of one lane to another."""
        for pool in (self.keys, self.values):
            pool[:, target, :, :length].copy_(pool[:, source, :, :length])

    def clear(self, lane: int) -> None:
        """Zero a lane, so that values which are not finite cannot reach a later sequence."""
        self.keys[:, lane].zero_()
        self.values[:, lane].zero_()


def turn_run(rope: Rope, start: int, rows: int) -> Turn:
    """Rotations of consecutive positions, as views."""
    return rope.queries.narrow(0, start, rows), rope.keys.narrow(0, start, rows)


def turn_at(rope: Rope, positions: Tensor) -> Turn:
    """Rotations of any positions, flattened to R rows."""
    flat = positions.reshape(-1)
    return rope.queries.index_select(0, flat), rope.keys.index_select(0, flat)


def batch_mask(starts: Tensor, seen: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [B, 1, T, length] for lanes of different lengths.

    Args:
        starts: committed length of each lane [B]; all columns before it are seen.
        seen: which of the S speculative columns after it each row sees, bool [B or 1, T, S].
        length: columns.
        dtype: of the scores.
    """
    columns = torch.arange(length, device=starts.device)[None] - starts[:, None]
    lanes, (rows, width) = starts.shape[0], seen.shape[-2:]
    inside = columns.clamp(0, width - 1)[:, None].expand(lanes, rows, length)
    tail = seen.expand(lanes, rows, width).gather(2, inside) & (columns < width)[:, None]
    allowed = tail | (columns < 0)[:, None]
    mask = torch.zeros(lanes, 1, rows, length, dtype=dtype, device=starts.device)
    return mask.masked_fill_(~allowed[:, None], float("-inf"))


class Tail:
    """Mask of one lane by a view: zeros for the committed columns, then S columns of structure."""

    def __init__(self, seen: Tensor, capacity: int, dtype: torch.dtype) -> None:
        rows, self.width = seen.shape
        self._capacity = capacity
        self._buffer = torch.zeros(rows, capacity + self.width, dtype=dtype, device=seen.device)
        self._structure = self._buffer[:, capacity:]
        self.fill(seen)

    def fill(self, seen: Tensor) -> None:
        """Set which speculative columns each row sees, bool [T, S]."""
        self._structure.zero_().masked_fill_(~seen, float("-inf"))

    def view(self, start: int, width: int) -> Tensor:
        """The mask [T, start + width] for ``start`` committed columns."""
        return self._buffer.narrow(1, self._capacity - start, start + width)
