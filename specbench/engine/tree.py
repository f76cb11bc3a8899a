"""Trees of drafted tokens: grow, select, and the arrays that verification reads (engine-spec 5).

A tree of N nodes has the root (the last confirmed token) at index 0 and parents before children.
Flat ids count the pool of candidates: 0..b-1 at depth 1, then b² per further depth, where
candidate c of beam row r has b + b²·(step - 1) + r·b + c. A chain is b = 1, no speculation is
N = 1. Everything that runs on the device has fixed shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.proposal import Proposal


@dataclass(slots=True, kw_only=True)
class Tree:
    """Drafted nodes of a batch: all [B, N] int64, ``seen`` [B or 1, N, N] bool.

    ``parents`` is -1 at the root; ``ranks`` the place of a node among the draft's choices after
    its parent; ``seen[j]`` marks the ancestors of j and j itself. ``depth`` is the deepest level.
    ``chain`` says that node j's parent is j - 1. ``proposal`` is what the drafts were drawn from,
    None when they are the draft's best.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    ranks: Tensor
    seen: Tensor
    depth: int
    chain: bool
    proposal: Proposal | None = None


def chain_shape(nodes: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parents, depths, ranks [1, N] and seen [1, N, N] of a chain; N = 1 is the empty tree."""
    depths = torch.arange(nodes, device=device)[None]
    seen = torch.ones(1, nodes, nodes, dtype=torch.bool, device=device).tril()
    return depths - 1, depths, torch.zeros_like(depths), seen


def top_choices(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` best ids of each row and their probabilities, ties to the lowest id.

    Probabilities are over the whole row (the draft's vocabulary) in float32 or wider. Repeated
    argmax is stable, which topk is not, and costs less than a stable sort of the vocabulary.

    Args:
        logits: [rows, Vd].
        count: b.

    Returns:
        ids [rows, b] and probabilities [rows, b].
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    probs = torch.softmax(wide, -1)
    left, chosen = wide, []
    for place in range(count):
        best = left.argmax(-1, keepdim=True)
        chosen.append(best)
        if place + 1 < count:
            left = left.scatter(-1, best, float("-inf"))
    ids = torch.cat(chosen, -1)
    return ids, probs.gather(-1, ids)


class Growth:
    """The pool of candidates of one drafting, and the beam that is grown next."""

    def __init__(self, tokens: Tensor, scores: Tensor) -> None:
        """``tokens`` and ``scores`` [B, b] are the choices after the root."""
        lanes, self.width = tokens.shape
        self.tokens, self.scores = tokens, scores
        self._pool_tokens, self._pool_scores = [tokens], [scores]
        ids = torch.arange(-1, self.width, device=tokens.device)
        self._parents = [ids.expand(lanes, -1)]
        self._beam = ids[1:].expand(lanes, -1)
        self._steps = 1

    def grow(self, tokens: Tensor, probs: Tensor) -> Tensor:
        """Add the choices [B, b, b] after each beam row; the best b become the next beam.

        Returns:
            For each new beam row the old row it grew from [B, b], to gather states by.
        """
        b = self.width
        if self._steps > 1:
            self._parents.append(self._beam)
        scores = (self.scores[:, :, None] * probs).flatten(1)
        flat = tokens.flatten(1)
        self._pool_tokens.append(flat)
        self._pool_scores.append(scores)
        best = torch.sort(scores, dim=-1, descending=True, stable=True)[1][:, :b]
        self.scores, self.tokens = scores.gather(1, best), flat.gather(1, best)
        self._beam = best + (b + b * b * (self._steps - 1))
        self._steps += 1
        return best // b

    @property
    def parent_list(self) -> Tensor:
        """Flat ids by ``id // b`` of the child (engine-spec 5.3), [B, b·(K-1) + 1]; -1 the root."""
        if self._steps == 1:
            return self._parents[0][:, :1]
        return torch.cat(self._parents, -1)

    def select(self, count: int) -> Tensor:
        """Flat ids of the ``count`` best candidates by (-score, id), ascending [B, count]."""
        scores = torch.cat(self._pool_scores, -1)
        best = torch.sort(scores, dim=-1, descending=True, stable=True)[1][:, :count]
        return best.sort(-1)[0]

    def tree(self, roots: Tensor, nodes: int) -> Tree:
        """The tree of ``nodes`` nodes, root counted, after ``roots`` [B]."""
        b, chosen = self.width, self.select(nodes - 1)
        tokens = torch.cat(self._pool_tokens, -1).gather(1, chosen)
        parent_ids = self.parent_list.gather(1, chosen // b)
        above = torch.where(
            parent_ids < 0, 0, torch.searchsorted(chosen, parent_ids.clamp(min=0)) + 1
        )
        depths = torch.where(chosen < b, 1, 2 + (chosen - b).clamp(min=0) // (b * b))
        root = torch.zeros_like(chosen[:, :1])
        parents = torch.cat([root - 1, above], -1)
        return Tree(
            tokens=torch.cat([roots[:, None], tokens], -1),
            parents=parents,
            depths=torch.cat([root, depths], -1),
            ranks=torch.cat([root, chosen % b], -1),
            seen=ancestors(parents, self._steps),
            depth=self._steps,
            chain=False,
        )


def ancestors(parents: Tensor, depth: int) -> Tensor:
    """Which nodes lie on each node's path to the root, itself included: bool [B, N, N]."""
    lanes, nodes = parents.shape
    own = torch.eye(nodes, dtype=torch.bool, device=parents.device).expand(lanes, -1, -1)
    seen, up = own, parents.clamp(min=0)[:, :, None].expand(-1, -1, nodes)
    for _ in range(depth):
        seen = seen.gather(1, up) | own
    return seen


def links(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node, -1 where there is none (engine-spec 5.4)."""
    first, sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        sibling[node], first[parents[node]] = first[parents[node]], node
    return first, sibling
