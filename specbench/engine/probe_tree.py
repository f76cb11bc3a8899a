"""Which level of a draft's tree still holds the target's own tokens, at every position of a text.

The tree is the engine's (engine-spec 5): grown by the ``topk`` best of each beam row, cut to the
N - 1 best nodes, every row seeing its own ancestors only. Each position of a reply is a lane of its
own, so one forward per step does all positions of a text.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_draft import Kept, ProbeDraft, TrueRows, attend
from specbench.engine.probe_scores import BoolArray, Chain, chain_rows
from specbench.engine.tree import Growth, Tree, top_choices
from specbench.engine.wiring import Wiring
from specbench.errors import ConfigError

MOST_LANES = 256


@torch.inference_mode()
def tree_levels(draft: ProbeDraft, capture: Capture, wiring: Wiring, spec: SpecConfig) -> BoolArray:
    """Levels 1..k of the tree drafted at a row hold the target's choices, bool [R, K].

    Rows are those of ``ProbeDraft.score`` with K steps. Where the text leaves the target's own
    choice the levels beyond say nothing: see ``Scores.greedy``.

    Raises:
        ConfigError: topk exceeds the draft's vocabulary, or a layer was not captured.
        WorkloadError: a text ends too early for K steps.
    """
    ids = draft.target_ids(direct=wiring.direct_map)
    if spec.topk > len(ids):
        raise ConfigError(
            f"topk={spec.topk} exceeds the draft's vocabulary of {len(ids)}.",
            todo=f"Set topk to at most {len(ids)}.",
        )
    chain, true = chain_rows(capture, spec.num_steps), draft.true_rows(capture, wiring)
    grower = _Grower(draft, capture, wiring, spec, true, ids)
    found = [
        grower.levels(text, chain.rows[at : min(at + MOST_LANES, high)])
        for text, (low, high) in enumerate(chain.pieces)
        for at in range(low, high, MOST_LANES)
    ]
    return np.concatenate([levels.cpu().numpy() for levels in found])


class _Grower:
    """Grows the trees of some rows of one text."""

    def __init__(
        self,
        draft: ProbeDraft,
        capture: Capture,
        wiring: Wiring,
        spec: SpecConfig,
        true: TrueRows,
        ids: Tensor,
    ) -> None:
        self._draft, self._capture, self._wiring = draft, capture, wiring
        self._spec, self._true, self._ids = spec, true, ids

    def levels(self, text: int, rows: Tensor) -> Tensor:
        """Bool [R, K] for the global ``rows`` of text number ``text``."""
        capture, steps = self._capture, self._spec.num_steps
        tree = self._tree(text, rows)
        at = torch.arange(1, steps + 1, device=rows.device)
        return matched(tree, capture.best[rows[:, None] + at])

    def _tree(self, text: int, rows: Tensor) -> Tree:
        """The trees drafted once the token after each of ``rows`` is known."""
        true, b, wiring = self._true, self._spec.topk, self._wiring
        wide = rows.repeat_interleave(b)
        first_row = torch.arange(len(rows), device=rows.device)[:, None] * b
        own: list[Kept] = []
        state, tokens, probs = self._guess(text, rows, true.query[rows], true.residual[rows], own)
        growth = Growth(tokens, probs)
        state = state.repeat_interleave(b, 0)
        for step in range(1, self._spec.num_steps):
            at = true.positions[wide] + (step + wiring.decode_shift)
            entering = self._draft.attention_in(growth.tokens.flatten(), state, at, wiring)
            query, new, residual = entering
            own.append(new)
            state, tokens, probs = self._guess(text, wide, query, residual, own)
            picked = growth.grow(tokens.view(-1, b, b), probs.view(-1, b, b))
            grown_from = (first_row + picked).flatten()
            state, own = state[grown_from], [kept.pick(grown_from) for kept in own]
        return growth.tree(self._capture.tokens[rows + 1], self._spec.num_draft_tokens)

    def _guess(
        self, text: int, rows: Tensor, query: Tensor, residual: Tensor, own: list[Kept]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """State [R, H] after some rows, and their ``topk`` best tokens and probabilities [R, b]."""
        pieces = [(0, 0)] * len(self._capture.samples)
        pieces[text] = (0, len(rows))
        chain = Chain(rows, tuple(pieces))
        mixed = attend(query, self._true.kept, own, self._capture, chain)
        state, logits = self._draft.finish(residual, mixed, self._wiring)
        columns, probs = top_choices(logits, self._spec.topk)
        return state, self._ids[columns], probs


def matched(tree: Tree, truth: Tensor) -> Tensor:
    """How far a path of ``truth`` tokens [R, K] goes down each of R trees: levels reached [R, K].

    Of equal siblings the first counts, as in a verification (engine-spec 6.1).
    """
    nodes = tree.tokens.shape[1]
    here, levels = torch.zeros_like(truth[:, 0]), []
    for level in range(truth.shape[1]):
        child = (tree.parents == here[:, None]) & (tree.tokens == truth[:, level, None])
        found = child.any(-1)
        levels.append(found)
        here = torch.where(found, child.int().argmax(-1), nodes)  # no node has such a parent
    return torch.stack(levels, 1)
