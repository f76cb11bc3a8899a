"""One running request, and the batch of those that share a step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specbench.engine.text import TextStream
from specbench.engine.verify import Chooser
from specbench.errors import BackendError
from specbench.request import Request
from specbench.trace import Chunk, Finish, StepTrace, Usage

Handle = int


@dataclass(slots=True, kw_only=True)
class Sequence:
    """One request in the engine; ``committed`` counts the tokens whose keys are in the cache.

    The last token of prompt and output is always one ahead of the cache: it is verified, and the
    root of the next tree. ``lane`` is -1 while the request waits.
    """

    handle: Handle
    request: Request
    prompt: tuple[int, ...]
    stop_ids: frozenset[int]
    text: TextStream
    chooser: Chooser
    output: list[int] = field(default_factory=list)
    lane: int = -1
    committed: int = 0
    finish: Finish | None = None
    verify_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    histogram: dict[int, int] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.prompt) + len(self.output)

    @property
    def last_token(self) -> int:
        """The root of the next tree."""
        return self.output[-1]

    def count(self, drafted: int, accepted: int) -> None:
        """Add one verify step to the totals."""
        self.verify_steps += 1
        self.drafted += drafted
        self.accepted += accepted
        self.histogram[accepted] = self.histogram.get(accepted, 0) + 1

    def usage(self) -> Usage:
        """Totals of the request so far; the histogram counts steps by accepted drafts."""
        depth = max(self.histogram, default=0)
        return Usage(
            prompt_tokens=len(self.prompt),
            completion_tokens=len(self.output),
            verify_steps=self.verify_steps,
            drafted=self.drafted,
            accepted=self.accepted,
            histogram=tuple(self.histogram.get(a, 0) for a in range(depth + 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What a step produced for one request, in the order trace, chunk, end.

    ``trace`` is None for the token of the prefill; ``finish`` is None while the request goes on;
    ``error`` is set when the request failed.
    """

    handle: Handle
    trace: StepTrace | None = None
    chunk: Chunk | None = None
    finish: Finish | None = None
    usage: Usage = Usage()
    output_ids: tuple[int, ...] = ()
    error: BackendError | None = None


@dataclass(slots=True, kw_only=True)
class Batch:
    """The sequences of one step, in lanes 0..B-1, and what the device needs to know of them."""

    sequences: list[Sequence]
    starts: list[int]
    roots: Tensor
    start_tensor: Tensor

    @classmethod
    def of(cls, sequences: list[Sequence], device: torch.device) -> Batch:
        """Pack lengths and roots into one transfer."""
        starts = [s.committed for s in sequences]
        packed = torch.tensor([starts, [s.last_token for s in sequences]], device=device)
        return cls(
            sequences=list(sequences), starts=starts, roots=packed[1], start_tensor=packed[0]
        )

    @property
    def size(self) -> int:
        """Sequences in the batch."""
        return len(self.sequences)

    @property
    def choosers(self) -> list[Chooser]:
        """How each lane's tokens are chosen."""
        return [s.chooser for s in self.sequences]


def new_chooser(request: Request) -> Chooser:
    """A request's own coins: its draws do not depend on what else is in the batch."""
    return Chooser(sampling=request.sampling, coins=random.Random(request.sampling.seed))
