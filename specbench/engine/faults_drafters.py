"""Drafters that are wrong in one way each; ``faults`` switches them on, in tests alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from specbench.engine.batch import Batch
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.models.base import Span
from specbench.engine.models.layers import Rope
from specbench.engine.verify import Verdict


class DecodeShift(Eagle3Drafter):
    """Drafted rows stand one position too far (F22)."""

    def _span(self, batch: Batch, step: int, width: int, seen: Tensor | None) -> Span:
        right, self._rope = self._rope, self._late
        try:
            return super()._span(batch, step, width, seen)
        finally:
            self._rope = right

    @property
    def _late(self) -> Rope:
        """The rotations with entry i + 1 at i, so that every kind of batch reads it alike."""
        known: Rope | None = self.__dict__.get("late")
        if known is None:
            known = self.__dict__["late"] = copy.copy(self._rope)
            for name in ("queries", "keys"):
                table = getattr(self._rope, name)
                setattr(known, name, torch.cat([table[1:], table[-1:]]))
        return known


class NoExtend(Eagle3Drafter):
    """After a verify only the last row is redone; the draft's own keys survive (F26)."""

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """See the class."""
        nodes = self.spec.num_draft_tokens
        for lane, verdict in enumerate(verdicts):
            start = batch.starts[lane] + len(verdict.path) - 1
            row = lane * nodes + verdict.path[-1]
            self._extend_lane(lane, start, verdict.tokens[-1:], features[row : row + 1], last=True)


class WrongRow(Eagle3Drafter):
    """After a verify the first kept row guesses, not the last (F27)."""

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """See the class."""
        super().extend(batch, features, verdicts)
        nodes = self.spec.num_draft_tokens
        for lane, verdict in enumerate(verdicts):
            row = lane * nodes
            self._extend_lane(
                lane, batch.starts[lane], verdict.tokens[:1], features[row : row + 1], last=True
            )


class StaleFeatures(Eagle3Drafter):
    """The extend reads the features of the verify before (F10): the buffer keeps its old values."""

    _old: Tensor | None = None

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """See the class."""
        old, self._old = self._old, features.clone()
        if old is not None and old.shape == features.shape:
            features.copy_(old)
        super().extend(batch, features, verdicts)


class LateFeatures(Eagle3Drafter):
    """Token i+1 is joined with feature i-1 (F23)."""

    _last: Tensor | None = None

    def _extend_lane(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        before = features[:1] if self._last is None or start == 0 else self._last
        self._last = features[-1:].clone()
        late = torch.cat([before, features[:-1]])
        super()._extend_lane(lane, start, tokens, late, last=last)


class UnshiftedTokens(Eagle3Drafter):
    """Token i is joined with feature i (F23)."""

    _token: int | None = None

    def _extend_lane(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        before = tokens[0] if self._token is None or start == 0 else self._token
        self._token = tokens[-1]
        super()._extend_lane(lane, start, [before, *tokens[:-1]], features, last=last)


class ChunkBorder(Eagle3Drafter):
    """The last row of a prompt chunk carries a guess, not the next prompt token (F24)."""

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        """See the class."""
        fed = list(tokens) if last else [*tokens[:-1], tokens[0]]
        super().prefill(lane, start, fed, features, last=last)


class CachedBorder(Eagle3Drafter):
    """The row at the end of a reused prefix keeps the token that followed it then (F25)."""

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        """See the class."""
        fresh = start == 0 or start == self._end.get(lane)
        self._end[lane] = start + len(tokens)
        if fresh or len(tokens) == 1:
            super().prefill(lane, start, tokens, features, last=last)
        else:
            super().prefill(lane, start + 1, tokens[1:], features[1:], last=last)

    @property
    def _end(self) -> dict[int, int]:
        """Where the last chunk of each lane ended: a chunk elsewhere follows a reused prefix."""
        ends: dict[int, int] = self.__dict__.setdefault("ends", {})
        return ends


class SiblingsSeen(Eagle3Drafter):
    """Every row of a tree sees all drafted rows, not its ancestors alone (F30)."""

    def _span(self, batch: Batch, step: int, width: int, seen: Tensor | None) -> Span:
        return super()._span(batch, step, width, None if seen is None else seen | True)
