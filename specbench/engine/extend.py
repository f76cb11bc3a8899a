"""The draft's extend: rows of (next token, true target feature), and the guess of the last one.

Only the last row of a lane guesses; the others store keys and values, which a one-layer draft
makes from its attention input alone, so their attention and MLP are never computed. A stacked
draft (``models.draft_stack``) runs every row through every layer, so its rows need a causal mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specbench.engine.batch import Batch
from specbench.engine.kv_cache import KVPool, batch_mask, turn_at, turn_run
from specbench.engine.models.base import RowKind
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Rope
from specbench.engine.verify import Verdict

Guess = tuple[Tensor, Tensor]


@dataclass(slots=True, kw_only=True)
class Kept:
    """What verification kept, as device tensors of fixed shape for B lanes of T rows.

    ``tokens`` [B·T] follow the kept nodes ``picked`` [B·T] (rows of the feature tensor); rows
    beyond a lane's ``ends`` [B] are padding that lands in speculative slots. ``last`` [B] are the
    rows that guess.
    """

    tokens: Tensor
    picked: Tensor
    last: Tensor
    ends: Tensor
    rows: int


PADDING = Verdict(path=(0,), tokens=(0,), ranks=(), depth=0)


class KeptInputs:
    """Static buffers of ``Kept``, filled from verdicts with one transfer."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._static: dict[tuple[int, int], Tensor] = {}

    def of(self, verdicts: Sequence[Verdict], nodes: int, rows: int, lanes: int) -> Kept:
        """Pack the kept paths, padded to ``rows`` and ``lanes``, over trees of ``nodes`` nodes."""
        verdicts = [*verdicts, *[PADDING] * (lanes - len(verdicts))]
        total = lanes * rows
        tokens = [[*v.tokens, *([0] * (rows - len(v.tokens)))] for v in verdicts]
        paths = [[*v.path, *([0] * (rows - len(v.path)))] for v in verdicts]
        ends = [len(v.path) - 1 for v in verdicts]
        packed = [
            *(token for lane in tokens for token in lane),
            *(lane * nodes + node for lane, path in enumerate(paths) for node in path),
            *(lane * rows + end for lane, end in enumerate(ends)),
            *ends,
        ]
        key = (lanes, rows)
        if key not in self._static:
            self._static[key] = torch.zeros(len(packed), dtype=torch.int64, device=self._device)
        static = self._static[key]
        static.copy_(torch.tensor(packed))
        token_part, picked, last, end = torch.split(static, [total, total, lanes, lanes])
        return Kept(tokens=token_part, picked=picked, last=last, ends=end, rows=rows)


def extend_lane(
    model: Eagle3Draft,
    pool: KVPool,
    rope: Rope,
    lane: int,
    start: int,
    tokens: Sequence[int],
    features: Tensor,
    *,
    guess: bool,
) -> Guess | None:
    """Rows (tokens[i], features[i]) at positions start + i of one lane, at exact length.

    Returns:
        Recurrent state [1, H] and logits [1, Vd] of the last row when ``guess``.
    """
    rows = len(tokens)
    mask = causal(model, start, rows) if model.spec.stacked else None
    span = pool.one_lane(lane, start, rows, turn_run(rope, start, rows), mask)
    hidden = model.hidden(features, RowKind.TARGET_FEATURES)
    ids = torch.tensor(tokens, device=model.device)
    residual = model.remember(ids, hidden, span, 1)
    if not guess:
        return None
    scratch = model.scratch(1, 1)
    if rows > 1:
        scratch.qkv.copy_(model.scratch(1, rows).qkv[-1:])
        span = replace(span, turn_q=turn_run(rope, start + rows - 1, 1)[0], mask=None)
    return model.guess(residual[-1:], span, scratch)


def causal(model: Eagle3Draft, start: int, rows: int) -> Tensor | None:
    """Additive mask [rows, start + rows]: each row sees what stands before it, and itself."""
    if rows == 1:
        return None
    hidden = torch.full((rows, rows), float("-inf"), dtype=model.dtype, device=model.device).triu(1)
    return torch.cat([hidden.new_zeros(rows, start), hidden], 1)


def extend_batch(
    model: Eagle3Draft, pool: KVPool, rope: Rope, batch: Batch, kept: Kept, features: Tensor
) -> Guess:
    """All lanes at once, from device tensors alone: state [B, H] and logits [B, Vd]."""
    lanes, rows, starts = batch.size, kept.rows, batch.start_tensor
    length = batch.length(rows)
    steps = torch.arange(rows, device=model.device)
    slots = starts[:, None] + steps
    mask = None
    if model.spec.stacked:
        before = torch.ones(1, rows, rows, dtype=torch.bool, device=model.device).tril()
        mask = batch_mask(starts, before, length, model.dtype)
    span = pool.batch(slots, length, turn_at(rope, slots), mask)
    chosen = features.index_select(0, kept.picked)
    hidden = model.hidden(chosen, RowKind.TARGET_FEATURES)
    residual = model.remember(kept.tokens, hidden, span, lanes).index_select(0, kept.last)
    scratch = model.scratch(lanes, 1)
    if rows > 1:
        scratch.qkv.copy_(model.scratch(lanes, rows).qkv.index_select(0, kept.last))
    sight = (steps <= kept.ends[:, None])[:, None]
    turn_q, _ = turn_at(rope, starts + kept.ends)
    span = replace(
        span,
        turn_q=turn_q.view(lanes, 1, 1, 1, -1),
        mask=batch_mask(starts, sight, length, model.dtype),
    )
    return model.guess(residual, span, scratch)
