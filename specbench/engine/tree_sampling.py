"""Target-only sampling over trees and chains: SGLang's rule at temperature > 0 (engine-spec 6.2).

At a node the children are tried in order against one coin: child c is accepted when the coin is
below the mass of the children up to c. The coin belongs to the node, so whether a node accepts a
child does not depend on how it was reached: all nodes decide at once, and the path is what can be
reached from the root. The last coin draws from what the rejected children left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.sampling import draw_left
from specbench.verification import VerifyRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """What was decided for L lanes: nodes ``kept`` [L, N], root included, and ``bonus`` [L]."""

    kept: Tensor
    bonus: Tensor


def sample_trees(
    probs: Tensor, tokens: Tensor, parents: Tensor, seen: Tensor, coins: Tensor, rules: VerifyRules
) -> Walks:
    """Walk L trees of N nodes.

    With both thresholds at 1 the emitted tokens have the target's distribution. ``threshold_acc``
    divides the mass that the coin is held against; a child of at least ``threshold_single`` is
    accepted whatever the coin.

    Args:
        probs: filtered target distributions after each node [L, N, V].
        tokens: [L, N]; siblings differ.
        parents: [L or 1, N], -1 at the root, parents before children.
        seen: ancestors of each node and itself [L or 1, N, N].
        coins: in [0, 1), [L, N + 1]: one per node, and one for the final draw.
        rules: the thresholds.
    """
    lanes, nodes, vocab = probs.shape
    parents = parents.expand(lanes, -1)
    above = parents.clamp(min=0)
    chance = probs.flatten(1).gather(1, above * vocab + tokens).double()
    same = parents[:, :, None] == parents[:, None, :]
    mass = (same.tril() * chance[:, None, :]).sum(-1)
    passes = coins.gather(1, above) < mass / rules.threshold_acc
    taken = (chance > 0) & (passes | (chance >= rules.threshold_single))
    taken &= ~(same.tril(-1) & taken[:, None, :]).any(-1)
    taken[:, 0] = True
    kept = (taken[:, None, :] | ~seen).all(-1)
    last = (kept * torch.arange(nodes, device=kept.device)).amax(-1)
    at_last = probs[torch.arange(lanes, device=probs.device), last]
    refused = (parents == last[:, None]).long()
    gone = torch.zeros_like(at_last, dtype=torch.int64).scatter_add_(1, tokens, refused)
    left = at_last.masked_fill(gone > 0, 0.0)
    return Walks(kept=kept, bonus=draw_left(left, at_last, coins[:, nodes]))
