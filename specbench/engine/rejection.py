"""Rejection sampling over chains, with the draft's distribution or a one-hot one (engine-spec 6.3).

Leviathan et al. 2023, "Fast inference from transformers via speculative decoding", algorithm 1;
the test is u·q < p, without a division.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.engine.sampling import draw_left
from specbench.engine.tree_sampling import Walks


def reject_chains(probs: Tensor, drafts: Tensor, proposed: Tensor | None, coins: Tensor) -> Walks:
    """Accept drafts from the left until one is rejected, and draw one more token.

    A draft d is accepted with probability min(1, p(d) / q(d)); after the first rejection the token
    comes from max(p - q, 0) renormalised, after K acceptances from p. The emitted tokens then have
    the target's distribution, provided that d was drawn from q.

    Args:
        probs: filtered target distributions p after each node [L, K + 1, V].
        drafts: drafted tokens [L, K].
        proposed: distributions q that they were drawn from [L, K, V]; None when each draft was
            certain (q is 1 at it, as with vLLM's greedy draft sampling).
        coins: in [0, 1), [L, K + 2]: one per node (the last node's is not used), and one for the
            final draw.
    """
    lanes, count = drafts.shape
    chance = probs[:, :count].gather(2, drafts[:, :, None])[:, :, 0].double()
    if proposed is None:
        offered = torch.ones_like(chance)
    else:
        offered = proposed.gather(2, drafts[:, :, None])[:, :, 0].double()
    passed = (offered > 0) & (coins[:, :count] * offered < chance)
    accepted = passed.long().cumprod(-1).sum(-1)
    every = torch.arange(lanes, device=probs.device)
    row, end = every, accepted.clamp(max=count - 1)
    at_last = probs[every, accepted]
    if proposed is None:
        left = at_last.scatter(1, drafts[row, end][:, None], 0.0)
    else:
        left = (at_last - proposed[row, end]).clamp(min=0.0)
    left = torch.where((accepted == count)[:, None], at_last, left)
    return Walks(kept=first_nodes(accepted, count), bonus=draw_left(left, at_last, coins[:, -1]))


def first_nodes(accepted: Tensor, count: int) -> Tensor:
    """The root and the first ``accepted`` [L] nodes of chains of ``count`` drafts: [L, K + 1]."""
    return torch.arange(count + 1, device=accepted.device) <= accepted[:, None]
