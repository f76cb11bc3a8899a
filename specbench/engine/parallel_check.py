"""Do all ranks do the same? Held against each other in every cycle (engine-spec 6.5 and 9).

Every rank decides on its own, from numbers that are equal bit for bit. That they are is checked,
not assumed: the drafted tokens, a sum over the bits of each row of captured features, and a hash of
the committed tokens go round once a cycle. A feature captured before its all-reduce (F34) and a
rank that decides otherwise (F35) end the run with the cycle, the rank and the request's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from specbench.engine.batch import Sequence
from specbench.engine.verify import Verdict
from specbench.errors import EngineError

if TYPE_CHECKING:
    from specbench.engine.parallel import Ranks

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class RankDisagreement(EngineError):  # noqa: N818  (says what it is, as its base says error)
    """A rank has other numbers than rank 0: ``rank``, ``cycle`` (0: a prompt) and ``request``."""

    def __init__(self, rank: int, cycle: int, request: str, what: str, expected: str) -> None:
        self.rank, self.cycle, self.request = rank, cycle, request
        when = f"in cycle {cycle}" if cycle else "in its prompt"
        super().__init__(
            f"request {request}: {when} rank {rank} {what}.",
            expected=expected,
            todo="Compare with --tensor-parallel 1.",
        )


@dataclass(slots=True)
class Seen:
    """What one rank has of ``lanes`` lanes: drafted tokens [lanes, N], captured features of the
    same rows [lanes·N, A·H] and the tokens to be committed; each may be missing."""

    lanes: int
    drafted: Tensor | None
    features: Tensor
    committed: list[tuple[int, ...]]

    def columns(self) -> dict[str, Tensor]:
        """Numbers per lane [lanes, ...] that are equal on ranks that did the same."""
        found = {}
        if self.drafted is not None:
            found["drafted"] = self.drafted.cpu()
        if self.features.numel():
            found["features"] = row_sums(self.features).view(self.lanes, -1).cpu()
        if self.committed:
            found["committed"] = torch.tensor([[token_hash(t)] for t in self.committed])
        return found

    def of(self, kind: str, lane: int) -> Tensor | list[int]:
        """What stands behind a column, of one lane."""
        if kind == "features":
            return self.features.view(self.lanes, -1, self.features.shape[-1])[lane].cpu()
        if kind == "drafted" and self.drafted is not None:
            drafted: list[int] = self.drafted[lane].tolist()
            return drafted
        return list(self.committed[lane])


class Agreement:
    """Compares what this rank has with the others, once per prompt chunk and cycle.

    While ``keep`` is set, ``hashes`` gets one entry per prompt and cycle: of the tokens committed.
    """

    def __init__(self, ranks: Ranks, capture: Ids[int]) -> None:
        """``capture`` are the target's captured layers, to name them."""
        self._ranks, self._capture = ranks, capture
        self._cycle, self.keep = 0, False
        self.hashes: list[str] = []

    def prompt(self, sequence: Sequence, features: Tensor, verdict: Verdict | None) -> None:
        """Compare a chunk of a prompt, and the first token when the chunk is the last.

        Args:
            sequence: whose prompt it is.
            features: captured ones of all its rows, or empty.
            verdict: None while the prompt goes on.

        Raises:
            RankDisagreement: on every rank alike.
        """
        committed = [] if verdict is None else [verdict.tokens]
        self._compare([sequence], Seen(1, None, features, committed), cycle=0)

    def cycle(
        self, sequences: Ids[Sequence], drafted: Tensor, verdicts: Ids[Verdict], features: Tensor
    ) -> None:
        """Compare a cycle of the batch before its tokens are committed.

        Lanes beyond the sequences are padding, which all write to one slot in any order.

        Args:
            sequences: of the B lanes that run.
            drafted: tokens of the trees [B or more, N].
            verdicts: of the B lanes.
            features: captured ones of all nodes [B·N or more, A·H], or empty.

        Raises:
            RankDisagreement: on every rank alike.
        """
        self._cycle += 1
        drafted = drafted[: len(sequences)]
        committed = [verdict.tokens for verdict in verdicts]
        seen = Seen(len(sequences), drafted, features[: drafted.numel()], committed)
        self._compare(sequences, seen, cycle=self._cycle)

    def _compare(self, sequences: Ids[Sequence], seen: Seen, *, cycle: int) -> None:
        if self.keep and seen.committed:
            self.hashes.append(f"{token_hash(seen.committed) % 2**64:016x}")
        columns = seen.columns()
        if not columns:  # a piece of a prompt on a target that captures nothing
            return
        by_rank = self._ranks.by_rank(torch.cat([*columns.values()], 1))
        wrong = (by_rank != by_rank[:1]).nonzero()
        if not len(wrong):
            return
        rank, lane, column = wrong[0].tolist()
        names = [name for name, part in columns.items() for _ in range(part.shape[1])]
        what, expected = self._details(names[column], seen.of(names[column], lane), rank)
        request = sequences[lane].request.request_id
        raise RankDisagreement(rank, cycle, request, what, expected)

    def _details(self, kind: str, own: Tensor | list[int], rank: int) -> tuple[str, str]:
        """What ``rank`` has and rank 0 has, from a second exchange that only a fault needs."""
        everyone: list[Any] = [None] * self._ranks.count
        dist.all_gather_object(everyone, own, group=self._ranks.commands)
        first, other = everyone[0], everyone[rank]
        if kind == "features":
            return (
                f"captured other features than rank 0: {self._parted(first, other)}",
                "Whole sums on every rank; a layer captured before its all-reduce is a part of "
                "one (F34).",
            )
        return f"{kind} {other} and rank 0 {first}", "The same tokens on every rank (F35)."

    def _parted(self, first: Tensor, other: Tensor) -> str:
        """The captured layers that differ, each with its largest difference."""
        apart = (first.double() - other.double()).abs().amax(0)
        largest = [part.max().item() for part in apart.chunk(len(self._capture))]
        pairs = zip(self._capture, largest, strict=True)
        return ", ".join(f"layer {k} by up to {most:.3g}" for k, most in pairs if most != 0.0)


def row_sums(features: Tensor) -> Tensor:
    """The sum over the bits of each row [R], int64: equal rows have equal sums, NaN included."""
    return features.contiguous().view(_BITS[features.element_size()]).sum(-1, dtype=torch.int64)


def token_hash(tokens: Ids[object]) -> int:
    """A signed 64-bit hash of a row of tokens."""
    digest = hashlib.blake2b(repr(list(tokens)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
