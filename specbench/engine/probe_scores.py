"""What a draft scored at every position, and the verify steps that follow from it.

Row i of a text stands for the moment when token x[i+1] was just committed: step 0 guesses x[i+2].
Rows run over the reply, from the first token that a draft is asked about to the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specbench.engine.probe_capture import Capture
from specbench.engine.probe_text import Sample
from specbench.errors import WorkloadError

UNKNOWN = -1
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chain:
    """Global rows [R] where chains start, and the part of them that belongs to each text."""

    rows: Tensor
    pieces: tuple[tuple[int, int], ...]


def chain_rows(capture: Capture, steps: int) -> Chain:
    """Rows of the replies from which ``steps`` tokens are known.

    Raises:
        WorkloadError: a text does not go ``steps`` tokens past its cut, or nothing is left.
    """
    rows, pieces, at = [], [], 0
    for sample, start in zip(capture.samples, capture.starts, strict=True):
        first = sample.prompt_len - 1
        end = max(sample.prompt_len + sample.output_len - 2, first)
        if end > first and end - 1 + steps > len(sample.tokens) - 1:
            raise WorkloadError(
                f"text {sample.request_id} ends {len(sample.tokens)} tokens in, too early for "
                f"{steps} steps from its last position.",
                todo="Generate with a larger past.",
            )
        rows.append(torch.arange(start + first, start + end, device=capture.tokens.device))
        pieces.append((at, at + end - first))
        at += end - first
    if at == 0:
        raise WorkloadError(
            "no reply has two tokens, so there is no position to score.",
            todo="Ask for longer replies.",
        )
    return Chain(torch.cat(rows), tuple(pieces))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Facts by row and step, shape [R, K]; ``text`` [R] is the row's text.

    ``rank`` counts draft scores above that of the target's argmax, ``UNKNOWN`` when that token is
    not in the draft's vocabulary. ``known_hit``: the draft's argmax is the target's best token
    among those the draft knows. ``greedy`` [R, K]: up to there the text is the target's argmax, so
    a chain's survival is exact. ``gap`` is the smaller relative gap of the two decisions, the
    draft's and the target's.
    """

    rank: IntArray
    known_hit: BoolArray
    greedy: BoolArray
    gap: npt.NDArray[np.float64]
    text: IntArray
    guess: IntArray

    @property
    def hit(self) -> BoolArray:
        """The draft's argmax is the target's, [R, K]; a token out of vocabulary is a miss."""
        found: BoolArray = self.rank == 0
        return found

    @property
    def alive(self) -> BoolArray:
        """Steps 1..k of a free-running chain are all right, [R, K]."""
        return np.logical_and.accumulate(self.hit & self.greedy, axis=1)

    def tree_alive(self, topk: int) -> BoolArray:
        """Levels 1..k of the full ``topk``-ary tree hold the target's tokens, [R, K].

        An upper bound for a tree of N nodes, which keeps only its most likely ones
        (``probe_tree.tree_levels`` grows that).
        """
        inside = (self.rank >= 0) & (self.rank < topk)
        return np.logical_and.accumulate(inside & self.greedy, axis=1)


@dataclass(slots=True)
class ScoreParts:
    """Scores while they are made, a step at a time."""

    capture: Capture
    chain: Chain
    ids: Tensor
    rank: list[Tensor] = field(default_factory=list)
    known: list[Tensor] = field(default_factory=list)
    gap: list[Tensor] = field(default_factory=list)
    guess: list[Tensor] = field(default_factory=list)

    def add(self, step: int, logits: Tensor) -> None:
        """Take in the draft's logits [R, Vd] of a step."""
        at = self.chain.rows + 1 + step
        truth, known = self.capture.best[at], self.capture.best_known[at]
        column, found = self._columns(truth)
        own = logits.gather(1, column[:, None])
        earlier = torch.arange(logits.shape[1], device=logits.device) < column[:, None]
        above = (logits > own).sum(-1) + ((logits == own) & earlier).sum(-1)
        guess = self.ids[logits.argmax(-1)]
        top = logits.double().topk(2)[0]
        gap = (top[:, 0] - top[:, 1]) / top[:, 0].abs().clamp(min=1.0)
        self.rank.append(torch.where(found, above, UNKNOWN))
        self.known.append(guess == known)
        self.gap.append(torch.minimum(gap, self.capture.gap[at]))
        self.guess.append(guess)

    def _columns(self, truth: Tensor) -> tuple[Tensor, Tensor]:
        """Draft column of target ids, and whether there is one; the first of equal ids."""
        ordered, column = self.ids.sort(stable=True)
        place = torch.searchsorted(ordered, truth).clamp(max=len(ordered) - 1)
        return column[place], ordered[place] == truth

    def scores(self) -> Scores:
        """All steps together, on the host."""
        rows, capture = self.chain.rows, self.capture
        steps = torch.arange(len(self.rank), device=rows.device)
        at = rows[:, None] + 1 + steps
        follows = capture.best == capture.tokens.roll(-1)
        # step k is reached over tokens x[i+2] .. x[i+1+k]: each must be the target's argmax
        before = torch.cat([torch.ones_like(follows[at[:, :1]]), follows[at[:, :-1]]], 1)
        text = [np.full(b - a, i) for i, (a, b) in enumerate(self.chain.pieces)]
        return Scores(
            rank=torch.stack(self.rank, 1).cpu().numpy(),
            known_hit=torch.stack(self.known, 1).cpu().numpy(),
            greedy=before.cumprod(1).bool().cpu().numpy(),
            gap=torch.stack(self.gap, 1).cpu().numpy(),
            text=np.concatenate(text),
            guess=torch.stack(self.guess, 1).cpu().numpy(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One verify step: tokens before it, drafts accepted, tokens emitted.

    ``gap`` is the closest call among the decisions of a chain; None for a tree.
    """

    committed: int
    accepted: int
    emitted: int
    gap: float | None


def walk(capture: Capture, scores: Scores, steps: int) -> list[list[Walked]]:
    """The verify steps of a chain of ``steps`` on each text, as the engine would make them.

    Raises:
        WorkloadError: more steps than were scored.
    """
    if steps > scores.rank.shape[1]:
        raise WorkloadError(f"{scores.rank.shape[1]} steps were scored, {steps} asked.")
    lengths = (scores.alive[:, :steps]).sum(1)
    return [
        _walk_text(lengths[scores.text == i], scores.gap[scores.text == i, :steps], sample)
        for i, sample in enumerate(capture.samples)
    ]


def tree_walk(capture: Capture, scores: Scores, alive: BoolArray) -> list[list[Walked]]:
    """The verify steps of trees whose levels 1..k hold the target's tokens (``alive`` [R, K])."""
    lengths = alive.sum(1)
    return [
        _walk_text(lengths[scores.text == i], None, sample)
        for i, sample in enumerate(capture.samples)
    ]


def _walk_text(
    lengths: IntArray, gaps: npt.NDArray[np.float64] | None, sample: Sample
) -> list[Walked]:
    """From row to row: a step that accepts a drafts emits a + 1 tokens, fewer at the cut."""
    steps: list[Walked] = []
    row = 0
    while row + 1 < sample.output_len:
        accepted = int(lengths[row])
        left = sample.output_len - 1 - row
        step = Walked(
            committed=sample.prompt_len + row + 1,
            accepted=accepted,
            emitted=min(accepted + 1, left),
            gap=None if gaps is None else float(gaps[row, : accepted + 1].min()),
        )
        steps.append(step)
        row += accepted + 1
    return steps
