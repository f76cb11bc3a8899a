"""What the engine asks of whatever proposes trees, and the one that proposes none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specbench.engine.batch import Batch
from specbench.engine.proposal import Proposal
from specbench.engine.tree import Tree, chain_shape
from specbench.engine.verify import Verdict


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


def chain_tree(
    tokens: Tensor,
    shape: tuple[Tensor, Tensor, Tensor, Tensor],
    proposal: Proposal | None = None,
) -> Tree:
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
        proposal=proposal,
    )
