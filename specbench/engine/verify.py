"""The only place where a token is chosen: walk a drafted tree with the target's scores.

A tree of the root alone is plain decoding, and the token after a prompt is chosen here too.
Greedy walk: engine-spec 6.1. Sampling: target-only tree sampling with both thresholds at 1,
which leaves the target's distribution exactly as it is (6.2).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.sampling import draw, filtered_probs
from specbench.engine.tree import Tree, links
from specbench.request import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """How one lane's tokens are chosen: its parameters and its own seeded coins."""

    sampling: SamplingParams
    coins: random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was decided for one lane.

    ``path`` are the node indices kept, the root first; ``tokens`` the accepted drafts and then
    the bonus token; ``ranks`` the rank among its siblings of each accepted node; ``depth`` the
    deepest level that was drafted. ``finite`` is
    False when the scores held NaN or infinity, and then nothing else counts.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ranks: tuple[int, ...]
    depth: int
    finite: bool = True

    @property
    def accepted(self) -> int:
        """Drafts kept, the bonus not counted."""
        return len(self.path) - 1


_BROKEN = Verdict(path=(0,), tokens=(), ranks=(), depth=0, finite=False)


def verify(logits: Tensor, tree: Tree, choosers: Sequence[Chooser]) -> list[Verdict]:
    """Choose the tokens of every lane.

    Args:
        logits: target scores [B·N, V] of the nodes, lanes after one another.
        tree: the drafted nodes of B lanes.
        choosers: one per lane.

    Returns:
        One verdict per lane, in order.
    """
    nodes = tree.tokens.shape[1]
    best, finite = best_tokens(logits)
    # the root's own token is never looked at, so a tree without drafts needs no transfer
    drafted = tree.tokens.tolist() if nodes > 1 else [[-1]] * len(choosers)
    shape = None
    if not tree.chain:
        shape = torch.stack([tree.parents, tree.ranks, tree.depths], 1).tolist()
    verdicts = []
    for lane, chooser in enumerate(choosers):
        rows = slice(lane * nodes, (lane + 1) * nodes)
        if not all(finite[rows]):
            verdicts.append(_BROKEN)
            continue
        first, sibling, ranks, depth = _links(shape and shape[lane], nodes)
        if chooser.sampling.greedy:
            path, bonus = greedy_walk(drafted[lane], first, sibling, best[rows])
        else:
            probs = filtered_probs(logits[rows], chooser.sampling)
            path, bonus = sampled_walk(drafted[lane], first, sibling, probs, chooser.coins)
        verdicts.append(
            Verdict(
                path=tuple(path),
                tokens=(*(drafted[lane][node] for node in path[1:]), bonus),
                ranks=tuple(ranks[node] for node in path[1:]),
                depth=depth,
            )
        )
    return verdicts


def best_tokens(logits: Tensor) -> tuple[list[int], list[bool]]:
    """Argmax of each row, ties to the lowest id, and whether the row is free of NaN and infinity.

    One sum finds values that are not finite; only then is each row looked at. Every separate
    operation outside the layers costs tens of microseconds on a CPU whose caches the weights have
    just flushed, so there are two.
    """
    best = logits.argmax(-1)
    if logits.device.type == "cpu":
        ids, total = best.tolist(), logits.sum(dtype=_wide(logits)).item()
    else:
        *exact, total = torch.cat([best.double(), logits.double().sum()[None]]).tolist()
        ids = [int(i) for i in exact]
    if math.isfinite(total):
        return ids, [True] * len(ids)
    return ids, torch.isfinite(logits).all(-1).tolist()


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def greedy_walk(
    tokens: Sequence[int], first: Sequence[int], sibling: Sequence[int], best: Sequence[int]
) -> tuple[list[int], int]:
    """Follow the child that equals the target's argmax as far as there is one (6.1).

    Returns:
        Node indices from the root, and the bonus token.
    """
    path = [0]
    while True:
        node = path[-1]
        child = first[node]
        while child >= 0 and tokens[child] != best[node]:
            child = sibling[child]
        if child < 0:
            return path, best[node]
        path.append(child)


def sampled_walk(
    tokens: Sequence[int],
    first: Sequence[int],
    sibling: Sequence[int],
    probs: Tensor,
    coins: random.Random,
) -> tuple[list[int], int]:
    """Target-only tree sampling (6.2): one coin per visited node, one for the final draw.

    Args:
        tokens: token of each node.
        first: first child of each node.
        sibling: next sibling of each node.
        probs: filtered target distribution after each node [N, V].
        coins: the request's own generator.
    """
    path = [0]
    while True:
        node, child = path[-1], first[path[-1]]
        coin, mass, rejected = coins.random(), 0.0, []
        while child >= 0:
            chance = float(probs[node, tokens[child]])
            mass += chance
            if chance > 0.0 and coin < mass:
                break
            rejected.append(tokens[child])
            child = sibling[child]
        if child >= 0:
            path.append(child)
            continue
        left = probs[node]
        if rejected:
            left = left.index_fill(0, torch.tensor(rejected, device=left.device), 0.0)
        # all mass on rejected tokens is possible only by rounding; the target's own draw is right
        return path, draw(left if bool(left.any()) else probs[node], coins.random())


def _links(
    shape: list[list[int]] | None, nodes: int
) -> tuple[Sequence[int], Sequence[int], Sequence[int], int]:
    """First children, next siblings, ranks and depth of one tree; of a chain without ``shape``."""
    if shape is None:
        return [*range(1, nodes), -1], [-1] * nodes, [0] * nodes, nodes - 1
    parents, ranks, depths = shape
    return *links(parents), ranks, max(depths)
