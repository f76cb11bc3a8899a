"""Filtered target distributions, and draws from them with a request's own coins."""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.request import SamplingParams


def filtered_probs(logits: Tensor, sampling: SamplingParams) -> Tensor:
    """Target probabilities [rows, V] after temperature, top-k, top-p and min-p, renormalised.

    The filters apply in this order, each on what the one before left. Float32 or wider. top-p
    keeps the smallest set of best tokens whose mass reaches it; min-p keeps tokens of at least
    min_p times the best one's probability.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    probs = torch.softmax(wide / sampling.temperature, -1)
    if 0 < sampling.top_k < probs.shape[-1]:
        order = torch.sort(probs, dim=-1, descending=True, stable=True)[1]
        probs = _renormalised(probs.scatter(-1, order[:, sampling.top_k :], 0.0))
    if sampling.top_p < 1.0:
        best, order = torch.sort(probs, dim=-1, descending=True, stable=True)
        before = best.cumsum(-1) - best
        kept = best.masked_fill((before >= sampling.top_p) & (before > 0), 0.0)
        probs = _renormalised(torch.zeros_like(probs).scatter(-1, order, kept))
    if sampling.min_p > 0.0:
        floor = probs.amax(-1, keepdim=True) * sampling.min_p
        probs = _renormalised(probs.masked_fill(probs < floor, 0.0))
    return probs


def draw(probs: Tensor, coin: float) -> int:
    """The token at which the cumulated mass of ``probs`` [V] passes ``coin`` in [0, 1).

    The mass need not be 1; tokens without mass are never drawn.
    """
    mass = probs.double().cumsum(0)
    target = mass.new_tensor([coin]) * mass[-1]
    place = int(torch.searchsorted(mass, target, right=True))
    last = int(torch.nonzero(probs)[-1])
    return min(place, last)


def _renormalised(probs: Tensor) -> Tensor:
    return probs / probs.sum(-1, keepdim=True)
