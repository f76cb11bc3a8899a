"""Two runs held against each other: the first difference that rounding does not explain.

Rows of numbers are compared by norm, layer by layer. Two orders of summation never give the same
bits, and a tensor of n layers sums many times, so a row may differ by half the digits of its dtype
(the square root of its epsilon, 3.5e-4 in float32). On the shipped pair sound ways stayed 300 times
below that, and the mildest of the faults in ``engine.faults`` 12 times above (docs/doctor.md).
Tokens are choices: where two runs choose differently after equal rows, the scores are looked at
(``parity_ties``), as the losslessness audit does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specbench.doctor.parity_result import Parity, Where
from specbench.doctor.parity_ties import draft_ties, target_ties
from specbench.doctor.parity_watch import Caches, Step, Watched
from specbench.engine.pair import ModelPair

WHY = "half the digits of the dtype, by row and layer, since ways sum in different orders"


def tolerance(dtype: torch.dtype) -> float:
    """What rounding may make of a row, relative to its norm.

    >>> round(tolerance(torch.float32), 6)
    0.000345
    """
    return math.sqrt(torch.finfo(dtype).eps)


@dataclass(slots=True)
class Comparison:
    """Collects differences: the largest of all rows, ties, and the first that is neither.

    ``shards`` says that one side holds a part of each cache row, which is then not looked at.
    """

    pair: ModelPair
    shards: bool = False
    largest: float = 0.0
    rows: int = 0
    steps: int = 0
    ties: int = 0
    first: Where | None = None
    requests: set[str] = field(default_factory=set)

    @property
    def limit(self) -> float:
        """The tolerance of the pair's dtype."""
        return tolerance(self.pair.dtype)

    def parity(self, name: str, how: str) -> Parity:
        """The outcome of a probe that compared nothing but this; ``how`` names its two ways."""
        many = f"{self.steps} steps and " if self.steps else ""
        return Parity(
            name=name,
            compared=f"{many}{self.rows} rows of {len(self.requests)} requests, {how}",
            largest=self.largest,
            tolerance=self.limit,
            why=WHY,
            ties=self.ties,
            first=self.first,
        )

    def differ(self, request: str, step: int, position: int, what: str) -> None:
        """Keep the first place."""
        if self.first is None:
            self.first = Where(request=request, step=step, position=position, what=what)

    def compare_rows(
        self, mine: Tensor, theirs: Tensor, request: str, step: int, start: int, what: str
    ) -> bool:
        """Rows [layers, rows, values] from position ``start`` on; False when one is too far off."""
        if not mine.numel():
            return True
        off = relative(mine, theirs)
        self.largest = max(self.largest, float(off.max()))
        self.rows += off.shape[-1]
        wrong = (off > self.limit).any(0).nonzero()
        if not len(wrong):
            return True
        at = int(wrong[0])
        size = float(off[:, at].max())
        self.differ(request, step, start + at, f"{what} differ by {size:.2g}")
        return False

    def compare_target(self, mine: Caches, theirs: Caches, request: str, step: int) -> bool:
        """The target's cache rows of one text."""
        what = "target cache rows"
        return self.compare_rows(mine.target, theirs.target, request, step, 0, what)

    def compare_draft(self, mine: Caches, theirs: Caches, request: str, step: int) -> bool:
        """The draft's cache rows of one text, and those that it then drafted."""
        place = mine.draft.shape[1]
        return self.compare_rows(
            mine.draft, theirs.draft, request, step, 0, "draft cache rows"
        ) and self.compare_rows(
            mine.drafted, theirs.drafted, request, step, place, "drafted rows (recurrent state)"
        )

    def compare_steps(self, mine: Watched, theirs: Watched) -> None:
        """Every step of every request that both have; a request is left at its first difference."""
        for request in mine.steps.keys() & theirs.steps.keys():
            self.requests.add(request)
            pairs = zip(mine.steps[request], theirs.steps[request], strict=False)
            text = (*mine.first[request].tokens[:-1], *mine.outputs[request])
            for number, (one, other) in enumerate(pairs, start=1):
                self.steps += 1
                if not self._same_step(one, other, request, number, text):
                    break

    def _same_step(
        self, one: Step, other: Step, request: str, number: int, text: tuple[int, ...]
    ) -> bool:
        at = one.committed
        if at != other.committed:
            self.differ(request, number, at, f"the step stands at {at} and at {other.committed}")
            return False
        before = text[: at + 1]
        if one.tokens == other.tokens and one.parents == other.parents:
            if not self.shards and not self.compare_rows(
                one.drafted, other.drafted, request, number, at, "drafted rows (recurrent state)"
            ):
                return False
        elif draft_ties(self.pair, before, one.paths, other.paths, self.limit):
            self.ties += 1
            return False
        else:
            self.differ(request, number, at + 1, "drafted tokens differ")
            return False
        if one.kept != other.kept:
            return self._kept(one, other, request, number, before)
        return self.compare_rows(
            one.features[None], other.features[None], request, number, at, "features"
        )

    def _kept(
        self, one: Step, other: Step, request: str, number: int, before: tuple[int, ...]
    ) -> bool:
        both = zip(one.kept, other.kept, strict=False)
        shared = next((i for i, (a, b) in enumerate(both) if a != b), 0)
        if target_ties(self.pair, (*before, *one.kept[:shared])):
            self.ties += 1
        else:
            place = one.committed + 1 + shared
            self.differ(request, number, place, "accepted tokens differ")
        return False


def relative(mine: Tensor, theirs: Tensor) -> Tensor:
    """Distance of rows over the larger one's size, [..., rows], in 0..2; a row that is not finite
    counts as 2, the most that two rows can be apart."""
    size = torch.maximum(mine.double().norm(dim=-1), theirs.double().norm(dim=-1))
    off = (mine.double() - theirs.double()).norm(dim=-1) / size.clamp(min=1e-30)
    return torch.where(torch.isfinite(off), off, torch.full_like(off, 2.0))
