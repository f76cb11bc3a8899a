"""Drafts drawn from the draft's own distribution, which is kept for verification.

The draft's scores go through the same filters as the target's, lane by lane, on the draft's
vocabulary; a target token that the draft does not know has probability 0 in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.sampling import Chooser, Filters, draw, filtered, tossed
from specbench.request import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Distributions that the drafts of B lanes were drawn from: ``probs`` [B, K, Vd].

    ``target_ids`` [Vd] is the target's token of each draft id.
    """

    probs: Tensor
    target_ids: Tensor

    def on_target(self, lanes: Tensor, vocab: int) -> Tensor:
        """The distributions of ``lanes`` [L] over the target's vocabulary: [L, K, V]."""
        probs = self.probs.index_select(0, lanes)
        whole = probs.new_zeros(*probs.shape[:2], vocab)
        return whole.index_add_(2, self.target_ids, probs)


class DraftSampler:
    """Picks the drafts of chains: drawn in sampled lanes, the best one in greedy lanes."""

    def __init__(self, *, lanes: int, steps: int, target_ids: Tensor, dtype: torch.dtype) -> None:
        """Room for ``lanes`` chains of ``steps`` drafts; ``dtype`` is the draft's."""
        device, vocab = target_ids.device, target_ids.shape[0]
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        self._target_ids = target_ids
        self._logits = torch.zeros(lanes, vocab, dtype=dtype, device=device)
        self._probs = torch.zeros(lanes, steps, vocab, dtype=wide, device=device)
        self._filters = Filters.of([], self._probs)
        self._coins = torch.zeros(lanes, steps, dtype=torch.float64, device=device)
        self._greedy = torch.zeros(lanes, dtype=torch.bool, device=device)

    def keep(self, lanes: slice, logits: Tensor) -> None:
        """Scores [L, Vd] behind each root, that the next drafting begins with."""
        self._logits[lanes] = logits

    def move(self, source: int, target: int) -> None:
        """A sequence changed its lane."""
        self._logits[target] = self._logits[source]

    def begin(self, choosers: Sequence[Chooser], lanes: int) -> bool:
        """Take the lanes' filters and coins for one drafting; False when every lane is greedy.

        A sampled lane spends K coins, whatever else is in the batch. ``lanes`` beyond the choosers
        are padding, and greedy.
        """
        device, steps, idle = self._probs.device, self._probs.shape[1], lanes - len(choosers)
        asked = [*(chooser.sampling for chooser in choosers), *[SamplingParams()] * idle]
        if all(params.greedy for params in asked):
            return False
        coins = torch.zeros(lanes, steps, dtype=torch.float64)
        for lane, chooser in enumerate(choosers):
            if not chooser.sampling.greedy:
                coins[lane] = tossed(chooser.coins, steps)
        self._coins = coins.to(device)
        self._greedy = torch.tensor([params.greedy for params in asked], device=device)
        self._filters = Filters.of(asked, self._probs)
        return True

    def pick(self, step: int, logits: Tensor | None = None) -> Tensor:
        """Target ids [L] of draft ``step``, and keep what they were drawn from.

        Args:
            step: 0 is the draft behind the root, whose scores were kept.
            logits: scores [L, Vd] of a later draft.
        """
        lanes = len(self._greedy)
        scores = self._logits[:lanes] if logits is None else logits
        # A broken draft (NaN) proposes nothing, so that its drafts are rejected and p is left.
        probs = filtered(scores[:, None], self._filters)[:, 0].nan_to_num(0.0)
        self._probs[:lanes, step] = probs
        drawn = draw(probs, self._coins[:, step]).clamp(max=scores.shape[-1] - 1)
        ids = torch.where(self._greedy, scores.argmax(-1), drawn)
        return self._target_ids.index_select(0, ids)

    @property
    def proposal(self) -> Proposal:
        """What the drafts of the last drafting were drawn from."""
        return Proposal(probs=self._probs[: len(self._greedy)], target_ids=self._target_ids)
