"""Steps and deliveries of a request held as columns; an object is made only when one is asked for.

A long run has millions of both. :class:`Steps` and :class:`Chunks` are sequences of
:class:`~specbench.trace.StepTrace` and :class:`~specbench.trace.Chunk` to whoever reads them one by
one, and arrays to whoever adds them up.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from specbench.trace import Chunk, StepTrace

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# ids of lost drafts stand with the few requests that a report shows: see RequestTrace.rejected
STEP_FIELDS = tuple(field.name for field in dataclasses.fields(StepTrace) if field.name != "lost")
COUNTS = tuple(name for name in STEP_FIELDS if name != "ranks")
PARTS = ("draft_ns", "extend_ns", "verify_ns", "other_ns")  # of a step's wall time
UNSAID = int(np.iinfo(np.int64).min)  # tokens of a chunk that no one counted
_ROW = {name: row for row, name in enumerate(COUNTS)}
_COUNTS_OF = operator.attrgetter(*COUNTS)


def whole_numbers(values: Any) -> IntArray:
    """``values`` as int64. Raises TypeError unless all are whole, OverflowError when too large."""
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "iu":
        raise TypeError(f"a column of whole numbers holds {found.dtype} values")
    if found.dtype == np.uint64:
        raise OverflowError("a column holds a number over 2**63 - 1")
    return found.astype(np.int64, copy=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps(Sequence[StepTrace]):
    """Verify steps of one request, or of many in a row.

    ``table`` has one row for each of ``COUNTS`` and one column a step. The ranks of step i are
    ``ranks[ends[i] : ends[i + 1]]``.
    """

    table: IntArray
    ends: IntArray
    ranks: IntArray

    @classmethod
    def of(cls, steps: Sequence[StepTrace]) -> Steps:
        """``steps`` as columns; as they are when they are columns."""
        if isinstance(steps, Steps):
            return steps
        rows = [_COUNTS_OF(step) for step in steps]
        table = np.array(rows, dtype=np.int64).reshape(len(rows), len(COUNTS))
        return cls(
            table=np.ascontiguousarray(table.T),
            ends=_ends([len(step.ranks) for step in steps]),
            ranks=np.array([rank for step in steps for rank in step.ranks], dtype=np.int64),
        )

    def checked(self) -> Steps:
        """Itself. Raises EngineError as the first impossible StepTrace would."""
        drafted, depth = self.column("drafted"), self.column("depth")
        accepted, emitted = self.column("accepted"), self.column("emitted")
        wrong = (accepted < 0) | (accepted > drafted) | (accepted > depth)
        wrong |= (emitted < 0) | (emitted > accepted + 1)
        if wrong.any():
            self[int(np.argmax(wrong))]
        return self

    def column(self, name: str) -> IntArray:
        """One of ``COUNTS``, shape (steps,)."""
        found: IntArray = self.table[_ROW[name]]
        return found

    @property
    def wall_ns(self) -> IntArray:
        """Wall time of each step's forward, shape (steps,)."""
        draft, extend, verify, other = (self.column(name) for name in PARTS)
        return draft + extend + verify + other

    def __len__(self) -> int:
        return int(self.table.shape[1])

    @overload
    def __getitem__(self, index: int) -> StepTrace: ...

    @overload
    def __getitem__(self, index: slice) -> Steps: ...

    def __getitem__(self, index: int | slice) -> StepTrace | Steps:
        if isinstance(index, slice):
            first, last, stride = index.indices(len(self))
            if stride != 1:
                raise ValueError("steps are cut in one piece")
            last = max(first, last)
            return Steps(
                table=self.table[:, first:last], ends=self.ends[first : last + 1], ranks=self.ranks
            )
        at = range(len(self))[index]
        counts = dict(zip(COUNTS, self.table[:, at].tolist(), strict=True))
        ranks = tuple(self.ranks[self.ends[at] : self.ends[at + 1]].tolist())
        return StepTrace(**counts, ranks=ranks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunks(Sequence[Chunk]):
    """Deliveries of one request: times, tokens (``UNSAID`` where no one counted) and texts."""

    at_ns: IntArray
    tokens: IntArray
    texts: Sequence[str]

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> Chunks:
        """``chunks`` as columns; as they are when they are columns."""
        if isinstance(chunks, Chunks):
            return chunks
        return cls(
            at_ns=np.array([chunk.at_ns for chunk in chunks], dtype=np.int64),
            tokens=said([chunk.tokens for chunk in chunks]),
            texts=[chunk.text for chunk in chunks],
        )

    @property
    def delivered(self) -> Chunks:
        """Those that brought something: text, or a positive number of tokens."""
        full: BoolArray = self.tokens > 0
        if not full.all():
            full |= np.fromiter(map(bool, self.texts), dtype=np.bool_, count=len(self))
        if full.all():
            return self
        kept = np.flatnonzero(full)
        texts = [self.texts[at] for at in kept.tolist()]
        return Chunks(at_ns=self.at_ns[kept], tokens=self.tokens[kept], texts=texts)

    @property
    def all_said(self) -> bool:
        """True when the tokens of each are known."""
        return not bool((self.tokens == UNSAID).any())

    @property
    def text(self) -> str:
        """All texts together."""
        return "".join(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...

    @overload
    def __getitem__(self, index: slice) -> Chunks: ...

    def __getitem__(self, index: int | slice) -> Chunk | Chunks:
        if isinstance(index, slice):
            return Chunks(
                at_ns=self.at_ns[index], tokens=self.tokens[index], texts=self.texts[index]
            )
        tokens = int(self.tokens[index])
        return Chunk(
            at_ns=int(self.at_ns[index]),
            tokens=None if tokens == UNSAID else tokens,
            text=self.texts[index],
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def said(tokens: Sequence[int | None]) -> IntArray:
    """Counts of tokens as a column, ``UNSAID`` for None."""
    return whole_numbers([UNSAID if count is None else count for count in tokens])


def _ends(lengths: Sequence[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def steps_by_request(columns: Any, count: int) -> list[Steps]:
    """The steps of each of ``count`` requests from columns keyed by ``STEP_FIELDS``.

    ``columns["request"]`` says whose a step is. ``columns["ranks"]`` holds a list a step, or the
    pair of their ends and values.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: these are no columns of steps.
        IndexError: a step of a request that is not there.
        EngineError: a step that cannot be.
    """
    owner = whole_numbers(columns["request"])
    ends, ranks = _ranks(columns["ranks"])
    table = np.stack([whole_numbers(columns[name]) for name in COUNTS])
    if not len(owner) == table.shape[1] == len(ends) - 1:
        raise ValueError("the columns of steps are not of one length")
    if owner.size and not 0 <= owner.min() <= owner.max() < count:
        raise IndexError(f"a step belongs to none of {count} requests")
    whole = Steps(table=table, ends=ends, ranks=ranks).checked()
    if (np.diff(owner) < 0).any():
        whole = _reordered(whole, np.argsort(owner, kind="stable"))
        owner = np.sort(owner)
    edges = np.searchsorted(owner, np.arange(count + 1)).tolist()
    return [whole[edges[i] : edges[i + 1]] for i in range(count)]


def _ranks(given: Any) -> tuple[IntArray, IntArray]:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], np.ndarray):
        return whole_numbers(given[0]), whole_numbers(given[1])
    values = [rank for ranks in given for rank in ranks]
    return _ends([len(ranks) for ranks in given]), whole_numbers(values)


def _reordered(steps: Steps, order: IntArray) -> Steps:
    return Steps.of([steps[int(at)] for at in order])
