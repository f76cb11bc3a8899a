"""The target's forwards behind the steps of an arm: each counted once, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.columns import PARTS, BoolArray, IntArray
from specbench.metrics.pool import Pool
from specbench.metrics.sums import RequestSums


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwards:
    """Every timed forward once, by block and number; arrays of shape (forwards,).

    ``request`` is the index of a request that took part, ``batch`` how many did. ``parts`` has
    shape (4, forwards): the times of ``PARTS``, which add up to ``wall_ns``.
    """

    block: IntArray
    request: IntArray
    batch: IntArray
    parts: IntArray

    @property
    def wall_ns(self) -> IntArray:
        """Time of each whole forward."""
        total: IntArray = self.parts.sum(axis=0)
        return total

    def where(self, kept: BoolArray) -> Forwards:
        """Those that ``kept`` marks."""
        return Forwards(
            block=self.block[kept],
            request=self.request[kept],
            batch=self.batch[kept],
            parts=self.parts[:, kept],
        )

    def __len__(self) -> int:
        return len(self.block)


def forwards_of(requests: Sequence[RequestSums], *, alone: bool) -> Forwards:
    """The forwards of ``requests``.

    The steps of one forward carry the same wall time, which is counted once (semantics.md 7, 8).
    ``alone`` says that no two requests ever share one, whatever number their server gave it.
    """
    counts = [len(request.steps) for request in requests]
    owner = np.repeat(np.arange(len(requests), dtype=np.int64), counts)
    blocks = np.array([request.block for request in requests], dtype=np.int64)

    column = Pool.of(requests).steps
    number, batch = column("batch_step"), column("batch")
    parts = np.stack([column(name) for name in PARTS])
    timed = np.flatnonzero(parts.any(axis=0))
    block, own = blocks[owner] if len(owner) else owner, owner if alone else 0 * owner
    order = timed[np.lexsort((own[timed], number[timed], block[timed]))]
    key = np.stack([block[order], number[order], own[order]])
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (key[:, 1:] != key[:, :-1]).any(axis=0)
    kept = order[last]
    return Forwards(block=block[kept], request=owner[kept], batch=batch[kept], parts=parts[:, kept])
