"""Drafting: propose a tree from the last draft row, and extend on true features after a verify.

The draft's row i pairs token x[i+1] with the target's feature g[i] at rotary position i, so the
first drafted token is a by-product of the extend, and a drafting of depth K needs K - 1 further
forwards (engine-spec 2.4, 2.5). Speculative draft rows sit in slots from ``committed`` on and are
overwritten by the extend; nothing the draft computed on its own states survives (6.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.batch import Batch
from specbench.engine.kv_cache import KVPool, Tail, batch_mask, turn_at, turn_run
from specbench.engine.models.base import RowKind, Span
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Rope
from specbench.engine.tree import Growth, Tree, chain_shape, top_choices
from specbench.engine.verify import Verdict

Observer = Callable[[int, int, list[int], Tensor], None]


class Drafter(Protocol):
    """What proposes trees."""

    def propose(self, batch: Batch) -> Tree:
        """A tree per lane, its root the lane's last token."""
        ...

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """Take in what was decided: target features [B·N, A·Ht] and the kept paths."""
        ...

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        """Take in a prompt chunk: rows (token x[i+1], feature g[i]) from position ``start``."""
        ...

    def move(self, source: int, target: int, length: int) -> None:
        """A sequence changed its lane."""
        ...

    def clear(self, lane: int) -> None:
        """A lane held values that are not finite."""
        ...


class NoDraft:
    """The empty tree: plain decoding through the same step."""

    def __init__(self, device: torch.device) -> None:
        self._shape = chain_shape(1, device)

    def propose(self, batch: Batch) -> Tree:
        """The root alone."""
        return chain_tree(batch.roots[:, None], self._shape)

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """Nothing to keep."""

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        """Nothing to keep."""

    def move(self, source: int, target: int, length: int) -> None:
        """Nothing to move."""

    def clear(self, lane: int) -> None:
        """Nothing to clear."""


def chain_tree(tokens: Tensor, shape: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tree:
    """A chain of ``tokens`` [B, N] with the shape from ``chain_shape``."""
    parents, depths, ranks, seen = shape
    return Tree(
        tokens=tokens,
        parents=parents,
        depths=depths,
        ranks=ranks,
        seen=seen,
        depth=tokens.shape[1] - 1,
        chain=True,
    )


class Eagle3Drafter:
    """EAGLE-3 drafting with exact ancestor attention, in the draft's own slots."""

    def __init__(self, model: Eagle3Draft, pool: KVPool, rope: Rope, spec: SpecConfig) -> None:
        self._model, self._pool, self._rope, self.spec = model, pool, rope, spec
        lanes, width = pool.lanes, spec.topk
        device, hidden = model.device, model.spec.shape.hidden
        self._state = torch.zeros(lanes, hidden, dtype=model.dtype, device=device)
        self._first = torch.zeros(lanes, width, dtype=torch.int64, device=device)
        wide = torch.float64 if model.dtype == torch.float64 else torch.float32
        self._scores = torch.zeros(lanes, width, dtype=wide, device=device)
        self._tokens = torch.zeros(lanes, spec.num_draft_tokens, dtype=torch.int64, device=device)
        self._chain = chain_shape(spec.num_draft_tokens, device)
        self._room = max((spec.num_steps - 1) * width, 1)
        self._own = torch.zeros(width, self._room, dtype=torch.bool, device=device)
        self._tail = Tail(self._own, pool.capacity, model.dtype)
        self.observer: Observer | None = None

    def propose(self, batch: Batch) -> Tree:
        """Draft a chain (b = 1) or a tree of N nodes for every lane."""
        if self.spec.topk == 1:
            return self._propose_chain(batch)
        return self._propose_tree(batch)

    def _propose_chain(self, batch: Batch) -> Tree:
        lanes = batch.size
        tokens = self._tokens[:lanes]
        tokens[:, 0] = batch.roots
        tokens[:, 1] = token = self._first[:lanes, 0]
        state, scratch = self._state[:lanes], self._model.scratch(lanes, 1)
        for step in range(1, self.spec.num_steps):
            span = self._span(batch, step, 1, None)
            residual = self._model.remember(
                token, self._model.hidden(state, RowKind.RECURRENT), span, lanes
            )
            state, logits = self._model.guess(residual, span, scratch)
            token = self._model.target_ids.index_select(0, logits.argmax(-1))
            tokens[:, step + 1] = token
        return chain_tree(tokens, self._chain)

    def _propose_tree(self, batch: Batch) -> Tree:
        lanes, b = batch.size, self.spec.topk
        growth = Growth(self._first[:lanes], self._scores[:lanes])
        state = self._state[:lanes].repeat_interleave(b, 0)
        scratch = self._model.scratch(lanes, b)
        seen = torch.zeros(lanes, b, self._room, dtype=torch.bool, device=state.device)
        first_row = torch.arange(lanes, device=state.device)[:, None] * b
        for step in range(1, self.spec.num_steps):
            seen = self._with_own(seen, step)
            span = self._span(batch, step, b, seen)
            residual = self._model.remember(
                growth.tokens.flatten(), self._model.hidden(state, RowKind.RECURRENT), span, lanes
            )
            state, logits = self._model.guess(residual, span, scratch)
            ids, probs = top_choices(logits, b)
            tokens = self._model.target_ids[ids].view(lanes, b, b)
            rows = growth.grow(tokens, probs.view(lanes, b, b))
            state = state.index_select(0, (first_row + rows).flatten())
            seen = seen.gather(1, rows[:, :, None].expand(-1, -1, self._room))
        return growth.tree(batch.roots, self.spec.num_draft_tokens)

    def _with_own(self, seen: Tensor, step: int) -> Tensor:
        """Each beam row also sees its own slot of this step."""
        own = self._own.clone()
        place = (step - 1) * self.spec.topk
        own[:, place : place + self.spec.topk].fill_diagonal_(True)
        return seen | own

    def _span(self, batch: Batch, step: int, width: int, seen: Tensor | None) -> Span:
        """Where the rows of draft decode ``step`` go: position committed + step - 1 (2.5, 2.6)."""
        offset, extra = (step - 1) * width, step * width
        if batch.size == 1:
            start = batch.starts[0]
            mask = None
            if seen is not None:
                self._tail.fill(seen[0])
                mask = self._tail.view(start, extra)
            turn = turn_run(self._rope, start + step - 1, 1)
            return self._pool.one_lane(0, start + offset, width, turn, mask)
        starts = batch.start_tensor
        length = max(batch.starts) + extra
        slots = starts[:, None] + torch.arange(offset, extra, device=starts.device)
        positions = (starts + (step - 1))[:, None].expand(-1, width)
        sight = self._chain_sight(step) if seen is None else seen
        mask = batch_mask(starts, sight, length, self._model.dtype)
        return self._pool.batch(slots, length, turn_at(self._rope, positions), mask)

    def _chain_sight(self, step: int) -> Tensor:
        return torch.ones(1, 1, step, dtype=torch.bool, device=self._model.device)

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """Redo the kept path with true features and read the next first token (6.7)."""
        if batch.size == 1:
            path, tokens = verdicts[0].path, list(verdicts[0].tokens)
            if path[-1] == len(path) - 1:
                rows = features[: len(path)]
            else:
                rows = features.index_select(0, torch.tensor(path, device=features.device))
            self._extend_lane(0, batch.starts[0], tokens, rows, last=True)
            return
        self._extend_batch(batch, features, verdicts)

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        """A chunk of the prompt; its last token is the next prompt token or the first output."""
        self._extend_lane(lane, start, list(tokens), features, last=last)

    def _extend_lane(
        self, lane: int, start: int, tokens: list[int], features: Tensor, *, last: bool
    ) -> None:
        """Rows (token, feature) at positions ``start`` on; the last one guesses when ``last``."""
        model, rows = self._model, len(tokens)
        if self.observer is not None:
            self.observer(lane, start, tokens, features)
        mask = None  # the rows before the last only store keys: nothing to hide from the last one
        span = self._pool.one_lane(lane, start, rows, turn_run(self._rope, start, rows), mask)
        ids = torch.tensor(tokens, device=model.device)
        hidden = model.hidden(features, RowKind.TARGET_FEATURES)
        residual = model.remember(ids, hidden, span, 1)
        if not last:
            return
        scratch = model.scratch(1, 1)
        if rows > 1:
            scratch.qkv.copy_(model.scratch(1, rows).qkv[-1:])
            turn_q, _ = turn_run(self._rope, start + rows - 1, 1)
            span = replace(span, turn_q=turn_q[None, :, None, None])
        state, logits = model.guess(residual[-1:], span, scratch)
        self._state[lane : lane + 1] = state
        self._begin(slice(lane, lane + 1), logits)

    def _extend_batch(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """All lanes at once, padded to the longest path; padding lands in speculative slots."""
        model, lanes = self._model, batch.size
        nodes = features.shape[0] // lanes
        rows = max(len(v.path) for v in verdicts)
        paths = [[*v.path, *([0] * (rows - len(v.path)))] for v in verdicts]
        tokens = [[*v.tokens, *([0] * (rows - len(v.tokens)))] for v in verdicts]
        ends = [max(len(v.path), 1) - 1 for v in verdicts]
        packed = torch.tensor(
            [
                *(t for lane in tokens for t in lane),
                *(lane * nodes + node for lane, path in enumerate(paths) for node in path),
                *(lane * rows + end for lane, end in enumerate(ends)),
                *ends,
            ],
            device=model.device,
        )
        total = lanes * rows
        ids, picked, last, end = torch.split(packed, [total, total, lanes, lanes])
        chosen = features.index_select(0, picked)
        if self.observer is not None:
            for lane, verdict in enumerate(verdicts):
                kept = slice(lane * rows, lane * rows + len(verdict.tokens))
                self.observer(lane, batch.starts[lane], list(verdict.tokens), chosen[kept])
        starts = batch.start_tensor
        length = max(batch.starts) + rows
        slots = starts[:, None] + torch.arange(rows, device=starts.device)
        turn = turn_at(self._rope, slots)
        span = self._pool.batch(slots, length, turn, None)
        hidden = model.hidden(chosen, RowKind.TARGET_FEATURES)
        residual = model.remember(ids, hidden, span, lanes).index_select(0, last)
        scratch = model.scratch(lanes, 1)
        if rows > 1:
            torch.index_select(model.scratch(lanes, rows).qkv, 0, last, out=scratch.qkv)
        sight = (torch.arange(rows, device=starts.device) <= end[:, None])[:, None]
        turn_q, _ = turn_at(self._rope, starts + end)
        span = replace(
            span,
            turn_q=turn_q.view(lanes, 1, 1, 1, -1),
            mask=batch_mask(starts, sight, length, model.dtype),
        )
        state, logits = model.guess(residual, span, scratch)
        self._state[:lanes] = state
        self._begin(slice(0, lanes), logits)

    def _begin(self, lanes: slice, logits: Tensor) -> None:
        """Keep the first choices of the next drafting."""
        if self.spec.topk == 1:
            self._first[lanes, 0] = self._model.target_ids.index_select(0, logits.argmax(-1))
            return
        ids, probs = top_choices(logits, self.spec.topk)
        self._first[lanes] = self._model.target_ids[ids]
        self._scores[lanes] = probs

    def move(self, source: int, target: int, length: int) -> None:
        """Move a lane's draft keys, state and first choices."""
        self._pool.move(source, target, length)
        for kept in (self._state, self._first, self._scores):
            kept[target] = kept[source]

    def clear(self, lane: int) -> None:
        """Zero a lane of the draft's cache."""
        self._pool.clear(lane)
