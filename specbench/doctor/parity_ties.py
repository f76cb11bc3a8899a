"""Was a choice that fell differently a tie? The scores behind it, computed apart from the engine.

A target's choice is a tie where its two best scores are closer than 1e-5, as in the losslessness
audit (semantics 18). A draft's choice is one where the probabilities that it gives to the two
drafts, each the product along its path, are closer than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.extend import extend_lane
from specbench.engine.gap import top2_gap
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.kv_cache import turn_run
from specbench.engine.memory import Memory
from specbench.engine.models.base import RowKind
from specbench.engine.pair import ModelPair
from specbench.engine.runner import TargetRunner, chunks
from specbench.metrics.lossless import TIE

Path = tuple[int, ...]


@torch.inference_mode()
def target_ties(pair: ModelPair, tokens: Sequence[int]) -> bool:
    """Whether the target's two best tokens after ``tokens`` tie."""
    return top2_gap(pair, EngineConfig(), tokens) < TIE


def draft_ties(
    pair: ModelPair, tokens: Sequence[int], mine: list[Path], theirs: list[Path], limit: float
) -> bool:
    """Whether two drafts after ``tokens`` differ only by paths that are about equally likely.

    Drafts with the same paths in another order tie as well.
    """
    only_mine, only_theirs = set(mine) - set(theirs), set(theirs) - set(mine)
    if not only_mine and not only_theirs:
        return True
    # of a path that parts, every longer one parts as well: the shortest are the choices made
    one = [min(only, key=len) for only in (only_mine, only_theirs) if only]
    if len(one) < 2:
        return False
    first, second = path_probabilities(pair, tokens, one)
    return abs(first - second) <= limit * max(first, second)


class DraftAlone:
    """The draft on one text from scratch: features, extend and chains, each as of rows 2.5."""

    def __init__(self, pair: ModelPair, tokens: Sequence[int], depth: int) -> None:
        """``tokens`` are the committed text and the root after it; ``depth`` drafts may follow."""
        if pair.draft is None:
            raise ValueError("a pair without a draft has no drafts to judge")
        self._model, self._start = pair.draft, len(tokens) - 1
        config = EngineConfig(max_batch_size=1, max_len=len(tokens) + depth)
        memory = Memory(pair, config)
        assert memory.draft is not None
        assert memory.draft_rope is not None
        self._pool, self._rope = memory.draft, memory.draft_rope
        graphs = Graphs(pair.device, GraphMode.EAGER)
        runner = TargetRunner(
            pair.target, memory.target, memory.target_rope, SpecConfig.baseline(), graphs
        )
        guess = None
        for start, part, last in chunks(tokens[:-1]):
            features = runner.prefill(0, start, part, last=last).features
            follow = tokens[start + 1 : start + len(part) + 1]
            guess = extend_lane(
                self._model, self._pool, self._rope, 0, start, follow, features, guess=last
            )
        assert guess is not None
        self._guess = guess

    def after(self, path: Path) -> Tensor:
        """The draft's logits [Vd] after ``path`` was drafted."""
        model, (state, logits) = self._model, self._guess
        for depth, token in enumerate(path):
            place = self._start + depth
            turn = turn_run(self._rope, place, 1)
            span = self._pool.one_lane(0, place, 1, turn)
            hidden = model.hidden(state, RowKind.RECURRENT)
            ids = torch.tensor([token], device=model.device)
            residual = model.remember(ids, hidden, span, 1)
            state, logits = model.guess(residual, span, model.scratch(1, 1))
        return logits[0]

    def probability(self, path: Path) -> float:
        """Product along ``path`` of what the draft gives to its tokens; 0 outside its words."""
        product = 1.0
        for depth, token in enumerate(path):
            column = (self._model.target_ids == token).nonzero()
            if not len(column):
                return 0.0
            shares = torch.softmax(self.after(path[:depth]).double(), -1)
            product *= float(shares[column[0, 0]])
        return product


@torch.inference_mode()
def path_probabilities(
    pair: ModelPair, tokens: Sequence[int], paths: Sequence[Path]
) -> list[float]:
    """What the draft gives to each of ``paths`` after ``tokens``."""
    alone = DraftAlone(pair, tokens, max(map(len, paths)))
    return [alone.probability(path) for path in paths]
