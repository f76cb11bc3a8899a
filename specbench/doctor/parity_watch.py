"""Runs an engine and notes, step by step, all that another way must reproduce.

Drafter and runner are watched through their protocols, so that a watched engine computes exactly
what an unwatched one does. Of every step and request are kept: what was drafted, the draft's cache
in its speculative slots (its recurrent state shows there), what was kept, and the features that
the extend was given. ``Caches`` are both models' rows of one lane at the moment of a drafting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.doctor.parity_setup import Build, Setup
from specbench.doctor.parity_texts import Texts
from specbench.engine.batch import Batch
from specbench.engine.engine import Engine
from specbench.engine.kv_cache import KVPool
from specbench.engine.tree import Tree
from specbench.engine.verify import Verdict
from specbench.errors import EngineError
from specbench.request import Request

MOST_STEPS = 10_000
Truth = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """One lane when a tree was drafted: ``tokens`` of its text, the last of which has no row yet,
    and rows [layers, rows, values] of target and draft. ``drafted`` are the draft's rows in its
    speculative slots."""

    tokens: tuple[int, ...]
    target: Tensor
    draft: Tensor
    drafted: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request's part of one cycle. ``paths`` are the drafted nodes, each as the tokens from the
    root to it; ``kept`` the accepted tokens and the bonus; ``features`` [kept, A·H] what the extend
    was given. ``moved`` says that the kept rows had to be moved together. The step that ends a run
    has no extend, and is not noted."""

    committed: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    drafted: Tensor
    kept: tuple[int, ...]
    moved: bool
    features: Tensor

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """By node, the root left out."""
        found: list[tuple[int, ...]] = [()]
        for token, parent in zip(self.tokens[1:], self.parents[1:], strict=True):
            found.append((*found[parent], token))
        return found[1:]


@dataclass(slots=True, kw_only=True)
class Watched:
    """What one run gave, by request id: ``first`` are the caches at a request's first drafting,
    ``last`` at the latest one that followed an extend of several rows (the first, if none did)."""

    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    first: dict[str, Caches] = field(default_factory=dict)
    last: dict[str, Caches] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)


class _Watch:
    """A drafter that passes everything on to the engine's own, and notes it."""

    def __init__(self, engine: Engine, seen: Watched, truth: Truth) -> None:
        self._engine, self._inner, self._seen = engine, engine.drafter, seen
        self._truth = truth
        spec = engine.spec
        self._room = max((spec.num_steps - 1) * spec.topk, 0)
        self._open: list[tuple[str, int, tuple[int, ...], Tensor]] = []
        self._tree: Tree | None = None

    def propose(self, batch: Batch) -> Tree:
        tree = self._inner.propose(batch)
        self._tree, self._open = tree, []
        for lane, sequence in enumerate(batch.sequences):
            name, start = sequence.request.request_id, batch.starts[lane]
            tokens = (*sequence.prompt, *sequence.output)
            caches = self._caches(lane, start, tokens)
            self._seen.first.setdefault(name, caches)
            past = self._seen.steps.get(name)
            if not past or len(past[-1].kept) > 1 or name not in self._seen.last:
                self._seen.last[name] = caches
            drafted = tuple(tree.tokens[lane].tolist())
            self._open.append((name, start, drafted, caches.drafted))
            rest = self._truth.get(name, ())[len(sequence.output) :]
            guide(tree, lane, rest, len(past or ()))
        return tree

    def _caches(self, lane: int, start: int, tokens: tuple[int, ...]) -> Caches:
        memory = self._engine.memory
        if memory.draft is None:
            raise EngineError("a pair without a draft is watched.")
        return Caches(
            tokens=tokens,
            target=rows_of(memory.target, lane, 0, start),
            draft=rows_of(memory.draft, lane, 0, start),
            drafted=rows_of(memory.draft, lane, start, start + self._room),
        )

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        tree, nodes = self._tree, self._engine.spec.num_draft_tokens
        if tree is not None:
            parents = tree.parents.expand(tree.tokens.shape[0], -1).tolist()
            for lane, (name, start, tokens, drafted) in enumerate(self._open):
                path = [lane * nodes + node for node in verdicts[lane].path]
                step = Step(
                    committed=start,
                    tokens=tokens,
                    parents=tuple(parents[lane]),
                    drafted=drafted,
                    kept=verdicts[lane].tokens,
                    moved=path[-1] - path[0] != len(path) - 1,
                    features=features[path].clone(),
                )
                self._seen.steps.setdefault(name, []).append(step)
        self._inner.extend(batch, features, verdicts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def rows_of(pool: KVPool, lane: int, start: int, end: int) -> Tensor:
    """Keys and values of slots ``start`` to ``end`` - 1, [layers, slots, values], copied."""
    parts = [part[:, lane, :, start:end].transpose(1, 2).flatten(2) for part in
             (pool.keys, pool.values)]  # fmt: skip
    return torch.cat(parts, -1).clone()


def guide(tree: Tree, lane: int, rest: Sequence[int], number: int) -> None:
    """Put the true next tokens ``rest`` on the way to the last leaf, so that step ``number``
    accepts some, whatever the draft is worth: all levels first, one fewer each time, then again.

    In place, as a replayed verify reads the tree where it lies.
    """
    parents = tree.parents[min(lane, tree.parents.shape[0] - 1)].tolist()
    path = [len(parents) - 1]
    while parents[path[0]] > 0:
        path.insert(0, parents[path[0]])
    levels = (len(path) - number) % (len(path) + 1)
    for node, token in zip(path[:levels], rest, strict=False):
        tree.tokens[lane, node] = token


@torch.inference_mode()
def run(engine: Engine, requests: Sequence[Request], truth: Truth | None = None) -> Watched:
    """Submit all, step until nothing is left, and note everything.

    Args:
        engine: configured, with nothing in flight.
        requests: what to run, together as far as the batch size lets them.
        truth: what plain decoding says, by request id, to guide drafts by; None leaves them alone.

    Raises:
        EngineError: a request failed, or the engine does not come to an end.
    """
    seen, own = Watched(), engine.drafter
    if not engine.spec.is_baseline:
        engine.drafter = _Watch(engine, seen, truth or {})
    try:
        _finish(engine, requests, seen)
    finally:
        engine.drafter = own
    return seen


def _finish(engine: Engine, requests: Sequence[Request], seen: Watched) -> None:
    names = {engine.submit(request): request.request_id for request in requests}
    for _ in range(MOST_STEPS):
        if engine.idle:
            return
        for emission in engine.step():
            name = names[emission.handle]
            if emission.error is not None:
                raise emission.error
            if emission.finish is not None:
                seen.outputs[name] = emission.output_ids
                seen.cached[name] = emission.usage.cached_tokens or 0
    raise EngineError(f"the engine made {MOST_STEPS} steps and is not done.")


class Runs:
    """Runs of one pair under setups; the same setup with the same requests is run once."""

    def __init__(self, build: Build, texts: Texts) -> None:
        self.build, self.texts = build, texts
        self._made: dict[tuple[Setup, tuple[Request, ...], bool], Watched] = {}

    def run(self, setup: Setup, requests: Sequence[Request], *, guided: bool = False) -> Watched:
        """What ``requests`` give together under ``setup``, on an engine of their own.

        ``guided`` drafts are right in part (``guide``): keep, extend and verify are then seen at
        work even where a broken draft is never right.
        """
        key = (setup, tuple(requests), guided)
        if key not in self._made:
            truth = self.plain.outputs if guided else None
            self._made[key] = run(self.build(setup), requests, truth)
        return self._made[key]

    @property
    def plain(self) -> Watched:
        """The texts by plain decoding."""
        setup = Setup(spec=SpecConfig.baseline(), max_len=self.texts.max_len)
        return self.run(setup, self.texts.requests())
