"""Whole parts of a step as one call each: verify, drafting a chain, extend.

They take what the engine keeps in static buffers anyway, by address: a separate operation costs
tens of microseconds on a CPU whose caches the weights have just flushed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int64, c_void_p

import torch
from torch import Tensor

from specbench.engine.kv_cache import KVPool
from specbench.engine.models.base import Features, RowKind
from specbench.engine.models.features import checked_features
from specbench.engine.models.layers import Rope
from specbench.engine.native.calls import CHabits, CRows, at
from specbench.engine.native.models import NativeDraft, NativeTarget

Buffers = tuple[Tensor, Tensor, "ctypes.Array[c_int64]"]  # rows, scores, best tokens

_P, _N, _ROWS = c_void_p, c_int64, POINTER(CRows)
_NODES = (_P, _ROWS, _P, _P, _P, _P, _N, _P, _P, _N, _P, _N, _P, _P, _P)
_CHAIN = (_P, _ROWS, _P, _P, _N, _P, _P, _N, _P, _N, _P, _P, _P, _P)
_EXTEND = (_P, _P, _ROWS, _P, _N, _P, _P, _P, _P, _P, _N, _P, _P, _N, _P, _P, _P)


def target_steps(target: object, pool: KVPool, rope: Rope) -> TargetSteps | None:
    """Verify in one call, for a target that can."""
    return TargetSteps(target, pool, rope) if isinstance(target, NativeTarget) else None


def draft_steps(draft: object, pool: KVPool, rope: Rope) -> DraftSteps | None:
    """Chains and extends in one call each, for a draft that can."""
    fits = isinstance(draft, NativeDraft) and not draft.norms_features
    return DraftSteps(draft, pool, rope) if fits and isinstance(draft, NativeDraft) else None


class TargetSteps:
    """The target's forward over all nodes of all trees, with scores and the best tokens."""

    def __init__(self, target: NativeTarget, pool: KVPool, rope: Rope) -> None:
        self._target, self._kept = target, (pool, rope)
        self._table = _table(pool, rope)
        self._call = target.library.target_nodes
        self._call.argtypes, self._call.restype = _NODES, None
        self._buffers: dict[int, Buffers] = {}
        self._lane = 0

    def verify(
        self,
        starts: Tensor,
        tokens: Tensor,
        shape: tuple[Tensor, Tensor] | None,
        columns: int,
        features: Features | None,
    ) -> tuple[Tensor, list[int]]:
        """Run all nodes.

        Args:
            starts: committed length of each lane [B].
            tokens: [B, N]; node t of lane b goes to slot starts[b] + t.
            shape: depths [B, N] and who sees whom, bool [B, N, N], of trees; None for chains.
            columns: the longest lane, its nodes included.
            features: room for the captured residual stream of B·N rows.

        Returns:
            Scores [B·N, V], valid until the next call, and the best token of each row, ties to the
            lowest id: -1 where a score is not finite.
        """
        rows = tokens.numel()
        if rows not in self._buffers:
            self._buffers[rows] = self._new_buffers(rows, rows)
        tokens = tokens.contiguous()
        size = (tokens.shape[0], tokens.shape[1])
        given = (starts.data_ptr(), tokens.data_ptr())
        return self._run(0, size, given, shape, columns, features, self._buffers[rows])

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Features | None, *, last: bool
    ) -> tuple[Tensor, list[int]]:
        """Run a piece of a prompt; scores of its last row when ``last``, else of none."""
        rows = len(tokens)
        given = (_ints([start]), _ints(tokens))
        buffers = self._new_buffers(rows, int(last))
        return self._run(lane, (1, rows), given, None, start + rows, features, buffers)

    def _new_buffers(self, rows: int, scored: int) -> Buffers:
        spec = self._target.spec
        x, logits = torch.empty(rows, spec.shape.hidden), torch.empty(scored, spec.vocab)
        return x, logits, (c_int64 * scored)()

    def _run(
        self,
        lane: int,
        size: tuple[int, int],
        given: tuple[object, object],
        shape: tuple[Tensor, Tensor] | None,
        columns: int,
        features: Features | None,
        buffers: Buffers,
    ) -> tuple[Tensor, list[int]]:
        target, table, (lanes, nodes) = self._target, self._table, size
        checked_features(features, target.capture, lanes * nodes, target.spec.shape.hidden)
        x, logits, best = buffers
        depths, sight = None, None
        if shape is not None:
            depths, sight = shape[0].contiguous(), shape[1].contiguous()
        table.lanes, table.rows = lanes, nodes
        if lane != self._lane:
            pool, self._lane = self._kept[0], lane
            table.keys, table.values = (t[0, lane].data_ptr() for t in (pool.keys, pool.values))
        self._call(
            ctypes.addressof(target.model.c),
            byref(table),
            *given,
            at(depths),
            at(sight),
            nodes * nodes,
            x.data_ptr(),
            at(None if features is None else features.tensor),
            0 if features is None else features.tensor.stride(0),
            target.places,
            len(best),
            logits.data_ptr(),
            best,
            target.room(lanes * nodes, columns),
        )
        return logits, best[:]


class DraftSteps:
    """A whole chain of drafts, or an extend and the guess behind it, for all lanes in one call."""

    def __init__(self, draft: NativeDraft, pool: KVPool, rope: Rope) -> None:
        self.draft, self._kept = draft, (pool, rope)
        self._table = _table(pool, rope)
        spec = draft.spec
        self._habits = CHabits(spec.norm_before_residual, spec.norm_output)
        self._chain, self._extend = draft.library.draft_chain, draft.library.draft_extend
        self._chain.argtypes, self._chain.restype = _CHAIN, None
        self._extend.argtypes, self._extend.restype = _EXTEND, None
        self._logits = torch.empty(pool.lanes, draft.target_ids.shape[0])

    def chain(
        self,
        roots: Tensor,
        starts: Tensor,
        first: Tensor,
        state: Tensor,
        tokens: Tensor,
        steps: int,
        columns: int,
    ) -> None:
        """Draft ``steps`` tokens for every lane.

        Args:
            roots: last token of each lane [B].
            starts: committed length of each lane [B].
            first: the first guesses [lanes, b].
            state: recurrent states behind them [lanes, H].
            tokens: [lanes, N]; rows of the B lanes are written.
            steps: K.
            columns: the longest lane, its K - 1 drafted rows included.
        """
        draft, lanes = self.draft, roots.shape[0]
        self._table.lanes, self._table.rows = lanes, 1
        self._chain(
            ctypes.addressof(draft.model.c),
            byref(self._table),
            ctypes.addressof(self._habits),
            starts.data_ptr(),
            steps,
            roots.data_ptr(),
            first.data_ptr(),
            first.stride(0),
            tokens.data_ptr(),
            tokens.stride(0),
            state.data_ptr(),
            draft.target_ids.data_ptr(),
            self._logits.data_ptr(),
            draft.room(3 * lanes, columns),
        )

    def extend(
        self,
        lane: int,
        starts: Sequence[int],
        rows: Sequence[tuple[Sequence[int], Sequence[int]]],
        features: Tensor,
        kept: tuple[Tensor, Tensor] | None,
    ) -> Tensor | None:
        """Rows of (token, true feature) of neighbouring lanes, and the guess of each lane's last.

        Args:
            lane: the first lane.
            starts: slot of the first row of each lane.
            rows: of each lane its tokens, and the rows of ``features`` that they follow.
            features: [R, A·H].
            kept: states [lanes, H] and first guesses [lanes, b] of all lanes, where those of these
                lanes are left; None for rows that do not guess.

        Returns:
            Scores [B, Vd] of the guesses, valid until the next call; None without.
        """
        draft, lanes = self.draft, len(rows)
        if features.shape[-1] != draft.spec.feature_width:
            draft.hidden(features, RowKind.TARGET_FEATURES)  # which says what does not fit
        counts = [len(tokens) for tokens, _ in rows]
        logits = None if kept is None else self._logits[:lanes]
        state, first = (None, None) if kept is None else (kept[0][lane:], kept[1][lane:])
        self._table.lanes, self._table.rows = lanes, 1
        longest = max(start + count for start, count in zip(starts, counts, strict=True))
        self._extend(
            ctypes.addressof(draft.model.c),
            ctypes.addressof(draft.fc_c),
            byref(self._table),
            ctypes.addressof(self._habits),
            lane,
            _ints(starts),
            _ints(counts),
            _ints([token for own, _ in rows for token in own]),
            _ints([row for _, own in rows for row in own]),
            features.data_ptr(),
            features.stride(0),
            at(state),
            at(first),
            0 if first is None else first.stride(0),
            draft.target_ids.data_ptr(),
            at(logits),
            draft.room(lanes, longest),
        )
        return logits


def _table(pool: KVPool, rope: Rope) -> CRows:
    """Caches, and rotations of position 0."""
    keys = pool.keys
    return CRows(
        turn_q=rope.queries.data_ptr(),
        turn_k=rope.keys.data_ptr(),
        keys=keys.data_ptr(),
        values=pool.values.data_ptr(),
        layer_stride=keys.stride(0),
        head_stride=keys.stride(2),
    )


def _ints(numbers: Sequence[int]) -> ctypes.Array[c_int64]:
    return (c_int64 * len(numbers))(*numbers)
