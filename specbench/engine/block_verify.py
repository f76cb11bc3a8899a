"""Block verification of chains: the longest prefix whose joint probability allows it.

Sun et al. 2025, "Block verification accelerates speculative decoding" (arXiv 2403.10444),
algorithm 2. It emits the target's distribution as rejection sampling does, and its expected number
of accepted drafts is never smaller: a draft with p > q makes up for an earlier one with p < q.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.engine.rejection import first_nodes
from specbench.engine.sampling import draw_left
from specbench.engine.tree_sampling import Walks


def verify_blocks(probs: Tensor, drafts: Tensor, proposed: Tensor, coins: Tensor) -> Walks:
    """Keep the longest prefix of each chain whose own coin accepts it, and draw one more token.

    Prefixes are not tried from the left: a rejected short one does not rule out a longer one.

    Args:
        probs: filtered target distributions p after each node [L, K + 1, V].
        drafts: drafted tokens [L, K].
        proposed: distributions q that they were drawn from [L, K, V].
        coins: in [0, 1), [L, K + 2]; one per node (the last node's is not used), and one for the
            final draw.
    """
    lanes, count = drafts.shape
    weights, chances = block_chances(probs, drafts, proposed)
    lengths = torch.arange(1, count + 1, device=probs.device)
    accepted = ((coins[:, :count] < chances) * lengths).amax(-1)
    every = torch.arange(lanes, device=probs.device)
    at_last, weight = probs[every, accepted], weights[every, accepted][:, None].to(probs.dtype)
    left = (weight * at_last - proposed[every, accepted.clamp(max=count - 1)]).clamp(min=0.0)
    left = torch.where((accepted == count)[:, None], at_last, left)
    return Walks(kept=first_nodes(accepted, count), bonus=draw_left(left, at_last, coins[:, -1]))


def block_chances(probs: Tensor, drafts: Tensor, proposed: Tensor) -> tuple[Tensor, Tensor]:
    """Weights w of prefixes of 0..K drafts and the chances h that those of 1..K are accepted.

    w_0 = 1 and w_i = min(1, w_(i-1) · p(d_i) / q(d_i)). With s_i = sum_v max(w_i · p - q, 0) at the
    node after i drafts, h_i = s_i / (s_i + 1 - w_i), and h_K = w_K. Where s_i and 1 - w_i are both
    0 the next prefix has weight 1 again, so h_i does not matter.

    Returns:
        w [L, K + 1] and h [L, K] in float64.
    """
    lanes, count = drafts.shape
    at_drafts = drafts[:, :, None]
    offered = proposed.gather(2, at_drafts)[:, :, 0].double()
    ratios = probs[:, :count].gather(2, at_drafts)[:, :, 0].double() / offered
    ratios = ratios.masked_fill(offered <= 0, 0.0)
    weights = [torch.ones(lanes, dtype=torch.float64, device=probs.device)]
    for step in range(count):
        weights.append((weights[-1] * ratios[:, step]).clamp(max=1.0))
    weight = torch.stack(weights, 1)
    inner = weight[:, 1:count]
    scaled = inner[:, :, None].to(probs.dtype) * probs[:, 1:count]
    spare = (scaled - proposed[:, 1:]).clamp(min=0.0).sum(-1, dtype=torch.float64)
    chances = (spare / (spare + 1.0 - inner)).nan_to_num(0.0)
    return weight, torch.cat([chances, weight[:, count:]], 1)
