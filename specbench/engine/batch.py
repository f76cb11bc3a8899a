"""One running request, and the batch of those that share a step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specbench.engine.sampling import Chooser
from specbench.engine.text import TextStream
from specbench.errors import BackendError
from specbench.request import Request
from specbench.trace import Chunk, Finish, StepTrace, Usage
from specbench.verification import VerifyRules

Handle = int


@dataclass(slots=True, kw_only=True)
class Sequence:
    """One request in the engine; ``committed`` counts the tokens whose keys are in the cache.

    The last token of prompt and output is always one ahead of the cache: it is verified, and the
    root of the next tree. ``settled`` of them have their row in the draft's cache as well, whatever
    becomes of the step that runs. ``lane`` is -1 while the request waits. ``cached_tokens`` are
    those of the prompt that were found in a lane's cache; None when none are looked for.
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
    settled: int = 0
    finish: Finish | None = None
    verify_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    histogram: dict[int, int] = field(default_factory=dict)
    cached_tokens: int | None = None

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
            cached_tokens=self.cached_tokens,
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
    """The sequences of one step, in lanes 0..B-1, and what the device needs to know of them.

    ``columns`` None lets forwards use the exact lengths; a number fixes what they look at, so
    that shapes depend on the batch size alone, as a captured graph demands. Then ``roots`` and
    ``start_tensor`` may have more rows than there are sequences: see ``BatchInputs``.
    """

    sequences: list[Sequence]
    starts: list[int]
    roots: Tensor
    start_tensor: Tensor
    columns: int | None

    @property
    def fixed(self) -> bool:
        """True when shapes may depend on nothing but the batch size."""
        return self.columns is not None

    @property
    def single(self) -> bool:
        """True when one lane may run at its exact length."""
        return self.columns is None and len(self.sequences) == 1

    def length(self, extra: int) -> int:
        """Cache columns that a forward looks at: up to ``extra`` past the longest lane, or all."""
        return self.columns if self.columns is not None else max(self.starts) + extra

    @property
    def size(self) -> int:
        """Rows of the tensors: sequences, and padding up to the next bucket."""
        return self.roots.shape[0]

    @property
    def padding(self) -> int:
        """Rows that stand for no sequence."""
        return self.size - len(self.sequences)

    @property
    def choosers(self) -> list[Chooser]:
        """How each lane's tokens are chosen."""
        return [s.chooser for s in self.sequences]


class BatchInputs:
    """Static buffers for lengths and roots: written through numpy on a CPU, one transfer else.

    With fixed ``columns``, a batch is padded to the next of ``buckets``: a graph is captured per
    bucket, not per batch size. A padding row has token 0 and stands at slot ``sink`` of the lane
    of its number, behind all slots that a sequence can commit. It reads and writes there, beside
    whatever the lane holds, and its results are dropped. No row ever reads another lane.
    """

    def __init__(
        self, lanes: int, device: torch.device, columns: int | None = None, sink: int = 0
    ) -> None:
        self._columns, self._sink = columns, sink
        sizes = range(lanes + 1) if columns is None else (0, *buckets(lanes))
        self._bucket = [min(size for size in sizes if size >= n) for n in range(lanes + 1)]
        host = torch.zeros(2, lanes, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._host, self._array = host, host.numpy()
        self._device = host if device.type == "cpu" else torch.zeros_like(host, device=device)
        self._views = [(self._device[1, :n], self._device[0, :n]) for n in range(lanes + 1)]

    def batch(self, sequences: list[Sequence]) -> Batch:
        """The batch of these sequences; its tensors are valid until the next call."""
        lanes, starts = len(sequences), [s.committed for s in sequences]
        self._array[0, :lanes] = starts
        self._array[1, :lanes] = [s.last_token for s in sequences]
        bucket = self._bucket[lanes]
        if bucket > lanes:
            self._array[0, lanes:bucket], self._array[1, lanes:bucket] = self._sink, 0
        if self._device is not self._host:
            self._device.copy_(self._host, non_blocking=True)
        roots, start_tensor = self._views[bucket]
        return Batch(
            sequences=list(sequences),
            starts=starts,
            roots=roots,
            start_tensor=start_tensor,
            columns=self._columns,
        )


def buckets(lanes: int) -> tuple[int, ...]:
    """Batch sizes that graphs are captured for: 1, 2, 4, then eights, and the largest itself.

    >>> buckets(3), buckets(20)
    ((1, 2, 3), (1, 2, 4, 8, 16, 20))
    """
    return (*(n for n in (1, 2, 4, *range(8, lanes, 8)) if n < lanes), lanes)


def new_chooser(request: Request, rules: VerifyRules | None = None) -> Chooser:
    """A request's own coins: its draws do not depend on what else is in the batch."""
    coins = random.Random(request.sampling.seed)
    return Chooser(sampling=request.sampling, coins=coins, rules=rules or VerifyRules())
