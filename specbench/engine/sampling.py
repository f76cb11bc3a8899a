"""Filtered distributions of many rows at once, and draws from them with a request's own coins.

Every lane has parameters of its own. What a lane gets does not depend on the others: a filter that
a lane did not ask for leaves its probabilities bit for bit as they were.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.request import SamplingParams
from specbench.verification import VerifyRules

COLDEST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """How one lane's tokens are chosen: its parameters, the rules, and its own seeded coins."""

    sampling: SamplingParams
    coins: random.Random
    rules: VerifyRules = VerifyRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Sampling parameters of L lanes, each [L, 1, 1]; None where no lane asks for that filter."""

    temperature: Tensor | None
    top_k: Tensor | None
    top_p: Tensor | None
    min_p: Tensor | None

    @classmethod
    def of(cls, asked: Sequence[SamplingParams], like: Tensor) -> Filters:
        """The parameters of these lanes, for scores ``like`` these.

        A greedy lane gets the lowest temperature there is: its distribution is at the best token.
        """
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32

        def column(values: Sequence[float], off: float) -> Tensor | None:
            if all(value == off for value in values):
                return None
            return torch.tensor(values, dtype=dtype, device=like.device)[:, None, None]

        return cls(
            temperature=column([max(params.temperature, COLDEST) for params in asked], 1.0),
            top_k=column([params.top_k for params in asked], 0.0),
            top_p=column([params.top_p for params in asked], 1.0),
            min_p=column([params.min_p for params in asked], 0.0),
        )


def filtered(logits: Tensor, filters: Filters) -> Tensor:
    """Probabilities [L, R, V] after temperature, top-k, top-p and min-p, renormalised.

    The filters apply in this order, each on what the one before left. Float32 or wider. top-p
    keeps the smallest set of best tokens whose mass reaches it; min-p keeps tokens of at least
    min_p times the best one's probability. Ties go to the lowest id.

    Args:
        logits: scores of R rows of each lane [L, R, V].
        filters: the lanes' parameters.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    # The best score is taken off first, so that no temperature is too low: 0 / T is 0.
    if filters.temperature is not None:
        wide = (wide - wide.amax(-1, keepdim=True)) / filters.temperature
    probs = torch.softmax(wide, -1)
    if filters.top_k is not None or filters.top_p is not None:
        best, order = torch.sort(probs, dim=-1, descending=True, stable=True)
        best = _keep_best(best, filters)
        probs = torch.zeros_like(probs).scatter(-1, order, best)
    if filters.min_p is not None:
        floor = probs.amax(-1, keepdim=True) * filters.min_p
        probs = _without(probs, probs < floor, filters.min_p > 0.0)
    return probs


def _keep_best(best: Tensor, filters: Filters) -> Tensor:
    """top-k and top-p on probabilities that are sorted already."""
    places = torch.arange(best.shape[-1], device=best.device)
    if filters.top_k is not None:
        best = _without(best, places >= filters.top_k, filters.top_k > 0)
    if filters.top_p is not None:
        before = best.cumsum(-1) - best
        gone = (before >= filters.top_p) & (places > 0)
        best = _without(best, gone, filters.top_p < 1.0)
    return best


def _without(probs: Tensor, gone: Tensor, active: Tensor) -> Tensor:
    """``probs`` without the tokens ``gone``, renormalised, in the lanes that are ``active``."""
    kept = probs.masked_fill(gone & active, 0.0)
    return kept / torch.where(active, kept.sum(-1, keepdim=True), 1.0)


def tossed(coins: random.Random, count: int) -> Tensor:
    """The next ``count`` coins [count] of a request, in float64."""
    return torch.tensor([coins.random() for _ in range(count)], dtype=torch.float64)


def draw(weights: Tensor, coins: Tensor) -> Tensor:
    """One token per row: where the cumulated weight passes the coin's share of the whole.

    Args:
        weights: [L, V], not negative, of any positive sum; tokens of weight 0 are never drawn.
        coins: [L] in [0, 1).

    Returns:
        Tokens [L] int64.
    """
    mass = weights.cumsum(-1, dtype=torch.float64)
    whole = mass[:, -1:]
    # a coin next to 1 may round up to the whole mass, which no token would pass
    share = torch.minimum(coins[:, None] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(mass, share, right=True)[:, 0]


def draw_left(left: Tensor, probs: Tensor, coins: Tensor) -> Tensor:
    """Draw from what rejections ``left`` [L, V] of ``probs`` [L, V].

    Nothing is left only where rounding rejected what is certain to be accepted; the target's own
    distribution is right there.
    """
    some = left.sum(-1, keepdim=True) > 0
    return draw(torch.where(some, left, probs), coins)
