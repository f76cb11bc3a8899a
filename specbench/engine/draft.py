"""Drafting: propose a tree from the last draft row, and extend on true features after a verify.

The draft's row i pairs token x[i+1] with the target's feature g[i] at rotary position i, so the
first drafted token is a by-product of the extend, and a drafting of depth K needs K - 1 further
forwards (engine-spec 2.4, 2.5). Speculative draft rows sit in slots from ``committed`` on and are
overwritten by the extend; nothing the draft computed on its own states survives (6.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.batch import Batch
from specbench.engine.drafter import chain_tree
from specbench.engine.extend import PADDING, Guess, KeptInputs, extend_batch, extend_lane
from specbench.engine.graphs import Graphs
from specbench.engine.kv_cache import KVPool, Tail, batch_mask, turn_at, turn_run
from specbench.engine.models.base import RowKind, Span
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Rope
from specbench.engine.native.steps import DraftSteps, draft_steps
from specbench.engine.proposal import DraftSampler
from specbench.engine.tree import Growth, Tree, chain_shape, top_choices
from specbench.engine.verify import Verdict
from specbench.verification import VerifyRules

Observer = Callable[[int, int, list[int], Tensor], None]


class Eagle3Drafter:
    """EAGLE-3 drafting with exact ancestor attention, in the draft's own slots."""

    def __init__(
        self,
        model: Eagle3Draft,
        pool: KVPool,
        rope: Rope,
        spec: SpecConfig,
        graphs: Graphs,
        rules: VerifyRules | None = None,
    ) -> None:
        self._model, self._pool, self._rope, self._graphs = model, pool, rope, graphs
        self.spec = spec
        lanes, width, device = pool.lanes, spec.topk, model.device
        wide = torch.float64 if model.dtype == torch.float64 else torch.float32
        self._state = torch.zeros(lanes, model.spec.shape.hidden, dtype=model.dtype, device=device)
        self._first = torch.zeros(lanes, width, dtype=torch.int64, device=device)
        self._scores = torch.zeros(lanes, width, dtype=wide, device=device)
        self._tokens = torch.zeros(lanes, spec.num_draft_tokens, dtype=torch.int64, device=device)
        self._chain = chain_shape(spec.num_draft_tokens, device)
        self._room = max((spec.num_steps - 1) * width, 1)
        self._own = own_slots(spec, device)
        self._tail = Tail(self._own[0], pool.capacity, model.dtype)
        self._kept = KeptInputs(device)
        # one call has no `_span`, which drafters of other kinds replace
        known = type(self)._span is Eagle3Drafter._span and not graphs.fixed
        self._steps = draft_steps(model, pool, rope) if known else None
        self._sampler: DraftSampler | None = None
        if rules is not None and rules.draws_drafts:
            self._sampler = DraftSampler(
                lanes=lanes, steps=spec.num_steps, target_ids=model.target_ids, dtype=model.dtype
            )
        self.observer: Observer | None = None

    @property
    def _native(self) -> DraftSteps | None:
        """The one-call forms, unless another model has been put in the place of theirs."""
        steps = self._steps
        return steps if steps is not None and steps.draft is self._model else None

    def propose(self, batch: Batch) -> Tree:
        """Draft a chain (b = 1) or a tree of N nodes for every lane."""
        lanes = batch.size
        inputs = (batch.roots, batch.start_tensor, self._state, self._first, self._scores)
        sampler = self._sampler
        if sampler is not None and sampler.begin(batch.choosers, batch.size):
            # Drawn outside the captured region: filters and coins change from step to step.
            return chain_tree(self._propose_chain(batch, sampler), self._chain, sampler.proposal)
        if self.spec.topk == 1:
            (tokens,) = self._graphs.run(
                ("draft", lanes), inputs, lambda: (self._propose_chain(batch),)
            )
            return chain_tree(tokens, self._chain)
        tokens, parents, depths, ranks, seen = self._graphs.run(
            ("draft", lanes), inputs, lambda: self._propose_tree(batch)
        )
        return Tree(
            tokens=tokens,
            parents=parents,
            depths=depths,
            ranks=ranks,
            seen=seen,
            depth=self.spec.num_steps,
            chain=False,
        )

    def _propose_chain(self, batch: Batch, sampler: DraftSampler | None = None) -> Tensor:
        lanes = batch.size
        tokens = self._tokens[:lanes]
        native, starts, steps = self._native, batch.start_tensor, self.spec.num_steps
        if native is not None and sampler is None:
            columns = batch.length(steps)
            native.chain(batch.roots, starts, self._first, self._state, tokens, steps, columns)
            return tokens
        tokens[:, 0] = batch.roots
        tokens[:, 1] = token = sampler.pick(0) if sampler else self._first[:lanes, 0]
        state, scratch = self._state[:lanes], self._model.scratch(lanes, 1)
        for step in range(1, steps):
            span = self._span(batch, step, 1, None)
            hidden = self._model.hidden(state, RowKind.RECURRENT)
            residual = self._model.remember(token, hidden, span, lanes)
            state, logits = self._model.guess(residual, span, scratch)
            if sampler:
                token = sampler.pick(step, logits)
            else:
                token = self._model.target_ids.index_select(0, logits.argmax(-1))
            tokens[:, step + 1] = token
        return tokens

    def _propose_tree(self, batch: Batch) -> tuple[Tensor, ...]:
        lanes, b, model = batch.size, self.spec.topk, self._model
        growth = Growth(self._first[:lanes], self._scores[:lanes])
        state = self._state[:lanes].repeat_interleave(b, 0)
        scratch, seen = model.scratch(lanes, b), self._own[0].expand(lanes, -1, -1)
        first_row = torch.arange(lanes, device=state.device)[:, None] * b
        for step in range(1, self.spec.num_steps):
            seen = seen | self._own[step]
            span = self._span(batch, step, b, seen)
            hidden = model.hidden(state, RowKind.RECURRENT)
            residual = model.remember(growth.tokens.flatten(), hidden, span, lanes)
            state, logits = model.guess(residual, span, scratch)
            ids, probs = top_choices(logits, b)
            tokens = model.target_ids.index_select(0, ids.flatten())
            rows = growth.grow(tokens.view(lanes, b, b), probs.view(lanes, b, b))
            # a child sees what its parent saw: the ancestors' slots are found again by parent
            state = state.index_select(0, (first_row + rows).flatten())
            seen = seen.gather(1, rows[:, :, None].expand(-1, -1, self._room))
        tree = growth.tree(batch.roots, self.spec.num_draft_tokens)
        return tree.tokens, tree.parents, tree.depths, tree.ranks, tree.seen

    def _span(self, batch: Batch, step: int, width: int, seen: Tensor | None) -> Span:
        """Where the rows of draft decode ``step`` go: position committed + step - 1 (2.5, 2.6)."""
        offset, extra = (step - 1) * width, step * width
        if batch.single:
            start = batch.starts[0]
            mask = None
            if seen is not None:
                self._tail.fill(seen[0])
                mask = self._tail.view(start, extra)
            turn = turn_run(self._rope, start + step - 1, 1)
            return self._pool.one_lane(0, start + offset, width, turn, mask)
        starts, length = batch.start_tensor, batch.length(extra)
        slots = starts[:, None] + torch.arange(offset, extra, device=starts.device)
        positions = (starts + (step - 1))[:, None].expand(-1, width)
        sight = self._chain[3][:, :1, :1].expand(1, 1, step) if seen is None else seen
        mask = batch_mask(starts, sight, length, self._model.dtype)
        return self._pool.batch(slots, length, turn_at(self._rope, positions), mask)

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """Redo the kept path with true features and read the next first tokens (6.7)."""
        lanes, nodes = batch.size, self.spec.num_draft_tokens
        if self.observer is not None:
            for lane, verdict in enumerate(verdicts):
                rows = [lane * nodes + node for node in verdict.path][: len(verdict.tokens)]
                self.observer(lane, batch.starts[lane], list(verdict.tokens), features[rows])
        if batch.single:
            path, tokens = verdicts[0].path, verdicts[0].tokens
            straight = path[-1] == len(path) - 1
            rows_kept = features[: len(path)] if straight else features[list(path)]
            self._extend_lane(0, batch.starts[0], tokens, rows_kept, last=True)
            return
        if self._native is not None:
            kept_rows = [
                (v.tokens or PADDING.tokens, [lane * nodes + node for node in v.path])
                for lane, v in enumerate(verdicts)
            ]
            self._extend_native(0, batch.starts, kept_rows, features, last=True)
            return
        rows_max = self.spec.num_steps + 1 if batch.fixed else max(len(v.path) for v in verdicts)
        kept = self._kept.of(verdicts, nodes, rows_max, lanes)
        inputs = (batch.start_tensor, kept.tokens, kept.picked, kept.last, kept.ends, features)
        model, pool, rope = self._model, self._pool, self._rope
        self._graphs.run(
            ("extend", lanes),
            inputs,
            lambda: self._begin(0, extend_batch(model, pool, rope, batch, kept, features)),
        )

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        """A chunk of the prompt; its last token is the next prompt token or the first output."""
        if self.observer is not None:
            self.observer(lane, start, list(tokens), features)
        self._extend_lane(lane, start, tokens, features, last=last)

    def _extend_lane(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        if self._native is not None:
            rows = [(tokens, range(len(tokens)))]
            self._extend_native(lane, [start], rows, features, last=last)
            return
        guess = extend_lane(
            self._model, self._pool, self._rope, lane, start, tokens, features, guess=last
        )
        if guess is not None:
            self._begin(lane, guess)

    def _extend_native(
        self,
        lane: int,
        starts: Sequence[int],
        rows: Sequence[tuple[Sequence[int], Sequence[int]]],
        features: Tensor,
        *,
        last: bool,
    ) -> None:
        """In one call, which leaves states and first tokens as well; see ``DraftSteps.extend``."""
        assert self._native is not None
        kept = (self._state, self._first) if last else None
        logits = self._native.extend(lane, starts, rows, features, kept)
        if logits is not None:
            self._choose(slice(lane, lane + len(rows)), logits, best_known=True)

    def _begin(self, lane: int, guess: Guess) -> tuple[Tensor, ...]:
        """Keep states and first choices of lanes from ``lane`` on for the next drafting."""
        state, logits = guess
        lanes = slice(lane, lane + state.shape[0])
        self._state[lanes] = state
        self._choose(lanes, logits, best_known=False)
        return self._state, self._first, self._scores

    def _choose(self, lanes: slice, logits: Tensor, *, best_known: bool) -> None:
        """First choices of ``lanes`` from their scores; the best may be kept already."""
        if self._sampler is not None:
            self._sampler.keep(lanes, logits)
        ids_of = self._model.target_ids
        if self.spec.topk > 1:
            ids, probs = top_choices(logits, self.spec.topk)
            self._first[lanes] = ids_of.index_select(0, ids.flatten()).view_as(ids)
            self._scores[lanes] = probs
        elif not best_known:
            self._first[lanes, 0] = ids_of.index_select(0, logits.argmax(-1))

    def move(self, source: int, target: int, length: int) -> None:
        """Move a lane's draft keys, state and first choices."""
        self._pool.move(source, target, length)
        for kept in (self._state, self._first, self._scores):
            kept[target] = kept[source]
        if self._sampler is not None:
            self._sampler.move(source, target)

    def clear(self, lane: int) -> None:
        """Zero a lane of the draft's cache, and the state that a padding row would start from."""
        self._pool.clear(lane)
        for kept in (self._state, self._first, self._scores):
            kept[lane] = 0


def own_slots(spec: SpecConfig, device: torch.device) -> Tensor:
    """Slot that beam row r fills at step i, bool [K, b, (K - 1)·b]; step 0 fills none."""
    b, steps = spec.topk, max(spec.num_steps, 1)
    own = torch.zeros(steps, b, max((steps - 1) * b, 1), dtype=torch.bool, device=device)
    for step in range(1, steps):
        place = slice((step - 1) * b, step * b)
        own[step, :, place] = torch.eye(b, dtype=torch.bool, device=device)
    return own
