"""The target's two forwards: a chunk of one prompt, and the trees of a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.batch import Batch
from specbench.engine.graphs import Graphs
from specbench.engine.kv_cache import KVPool, Tail, batch_mask, turn_at, turn_run
from specbench.engine.models.base import Features, Span, Target
from specbench.engine.models.layers import Rope
from specbench.engine.native.steps import target_steps
from specbench.engine.tree import Tree

PREFILL_ROWS = 256


@dataclass(slots=True, kw_only=True)
class Scores:
    """Target scores [rows, V] and captured features [R, A·Ht] of one forward.

    ``best`` are the best token of each row, -1 where a score is not finite; None when the forward
    does not say.
    """

    logits: Tensor
    features: Tensor
    best: list[int] | None = None


class TargetRunner:
    """Runs the target over slots of its pool; buffers are kept by shape."""

    def __init__(
        self, target: Target, pool: KVPool, rope: Rope, spec: SpecConfig, graphs: Graphs
    ) -> None:
        self._target, self._pool, self._rope, self._graphs = target, pool, rope, graphs
        self._nodes, self._dtype = spec.num_draft_tokens, pool.keys.dtype
        own = torch.ones(self._nodes, self._nodes, dtype=torch.bool, device=pool.device)
        self._tail = Tail(own.tril(), pool.capacity, self._dtype)
        self._steps = None if graphs.fixed else target_steps(target, pool, rope)
        self._features: dict[int, Features | None] = {}
        self._none = torch.empty(0, 0, dtype=self._dtype, device=pool.device)

    def verify(self, batch: Batch, tree: Tree) -> Scores:
        """One forward over all nodes of all trees."""
        rows = batch.size * self._nodes
        if rows not in self._features:
            self._features[rows] = self._target.new_features(rows)
        features = self._features[rows]
        if self._steps is not None:
            shape = None if tree.chain else (tree.depths, tree.seen)
            columns = batch.length(self._nodes)
            scores, best = self._steps.verify(
                batch.start_tensor, tree.tokens, shape, columns, features
            )
            vectors = self._none if features is None else features.tensor
            return Scores(logits=scores, features=vectors, best=best)
        logits, kept = self._graphs.run(
            ("verify", batch.size),
            (tree.tokens, tree.depths, tree.seen, batch.start_tensor),
            lambda: self._forward(batch, tree, features),
        )
        return Scores(logits=logits, features=kept)

    def _forward(
        self, batch: Batch, tree: Tree, features: Features | None
    ) -> tuple[Tensor, Tensor]:
        span = self._span(batch, tree)
        if self._target.windowed:
            span.positions = batch.start_tensor[:, None] + tree.depths
        hidden = self._target.forward(tree.tokens.flatten(), span, batch.size, features)
        return self._target.logits(hidden), self._none if features is None else features.tensor

    def prefill(self, lane: int, start: int, tokens: Sequence[int], *, last: bool) -> Scores:
        """Rows ``start`` on of one prompt; logits of the final row when ``last``, else none."""
        rows = len(tokens)
        features = self._target.new_features(rows)
        if self._steps is not None:
            logits, best = self._steps.prefill(lane, start, tokens, features, last=last)
            vectors = self._none if features is None else features.tensor
            return Scores(logits=logits, features=vectors, best=best)
        mask = None
        if rows > 1:
            mask = torch.full((rows, rows), float("-inf"), dtype=self._dtype).triu(1)
            mask = torch.nn.functional.pad(mask, (start, 0)).to(self._pool.device)
        span = self._pool.one_lane(lane, start, rows, turn_run(self._rope, start, rows), mask)
        if self._target.windowed:
            span.positions = torch.arange(start, start + rows, device=self._pool.device)[None]
        ids = torch.tensor(tokens, device=self._pool.device)
        hidden = self._target.forward(ids, span, 1, features)
        return Scores(
            logits=self._target.logits(hidden[-1:]) if last else self._none,
            features=self._none if features is None else features.tensor,
        )

    def _span(self, batch: Batch, tree: Tree) -> Span:
        nodes = self._nodes
        if batch.single:
            start = batch.starts[0]
            if tree.chain:
                turn = turn_run(self._rope, start, nodes)
            else:
                turn = turn_at(self._rope, tree.depths + start)
                self._tail.fill(tree.seen[0])
            mask = self._tail.view(start, nodes) if nodes > 1 else None
            return self._pool.one_lane(0, start, nodes, turn, mask)
        starts = batch.start_tensor[:, None]
        slots = starts + torch.arange(nodes, device=starts.device)
        length = batch.length(nodes)
        mask = batch_mask(batch.start_tensor, tree.seen, length, self._dtype)
        return self._pool.batch(slots, length, turn_at(self._rope, starts + tree.depths), mask)


def chunks(tokens: Sequence[int]) -> list[tuple[int, Sequence[int], bool]]:
    """A prompt cut into (start, tokens, is the last) of at most ``PREFILL_ROWS`` rows."""
    starts = range(0, len(tokens), PREFILL_ROWS)
    return [(at, tokens[at : at + PREFILL_ROWS], at + PREFILL_ROWS >= len(tokens)) for at in starts]
