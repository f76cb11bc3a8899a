"""Requests whose figures are pooled, with what those figures share worked out once.

A report asks the same requests some fifty questions: whose conversation a request belongs to, how
long it decoded, which evidence it has. :class:`Pool` answers each in one pass and keeps the answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar, overload

import numpy as np

from specbench.columns import BoolArray, IntArray
from specbench.estimate import Evidence
from specbench.metrics.stats import FloatArray
from specbench.metrics.sums import PromptKey, RequestSums

Field = str | Callable[[RequestSums], float | None]
K = TypeVar("K", bound=Hashable)


class Pool(Sequence[RequestSums]):
    """A tuple of requests that remembers its columns; made by :meth:`of`."""

    def __init__(self, requests: Iterable[RequestSums]) -> None:
        self._requests = tuple(requests)
        self._columns: dict[Field, FloatArray] = {}
        self._parts: dict[str, Pool] = {}
        self._cut_from: tuple[Pool, BoolArray] | None = None

    @classmethod
    def of(cls, requests: Sequence[RequestSums]) -> Pool:
        """``requests`` as a pool; as they are when they are one."""
        return requests if isinstance(requests, Pool) else cls(requests)

    def column(self, field: Field) -> FloatArray:
        """``field`` of each request, an attribute or a function of it: shape (requests,).

        NaN where a request does not know it. Whole numbers up to 2**53 are exact. Functions are
        told apart by identity, so give one that outlives the call.
        """
        found = self._columns.get(field)
        if found is None:
            if self._cut_from is not None:
                whole, kept = self._cut_from
                found = whole.column(field)[kept]
            else:
                of = operator.attrgetter(field) if isinstance(field, str) else field
                found = np.array([of(request) for request in self._requests], dtype=np.float64)
            found.setflags(write=False)
            self._columns[field] = found
        return found

    def total(self, field: Field) -> int | None:
        """The sum of a column of whole numbers; None when empty or a part is not known."""
        column = self.column(field)
        return int(column.sum()) if len(column) and self.knows(field) else None

    def counts(self, field: Field) -> FloatArray:
        """The column with 0 where it is not known."""
        return np.nan_to_num(self.column(field))

    def knows(self, field: Field) -> bool:
        """True when every request knows ``field``."""
        return not bool(np.isnan(self.column(field)).any())

    def add_up(self, *columns: FloatArray | IntArray) -> FloatArray:
        """``columns`` summed over the turns and repeats of each conversation.

        Returns:
            Shape (conversations, columns), in order of appearance: the units that are resampled.
        """
        return add_up(*self._owners, columns)

    def inside(self, category: str | None) -> BoolArray:
        """Which requests are of ``category``, all of them for None: shape (requests,)."""
        if category is None:
            return np.ones(len(self), dtype=np.bool_)
        return np.array([name == category for name in self._categories], dtype=np.bool_)

    def of_category(self, category: str | None) -> Pool:
        """The requests of one category; the pool itself for None, or where it has no other."""
        if category is None:
            return self
        if category not in self._parts:
            kept = self.inside(category)
            self._parts[category] = self if kept.all() else self._cut(kept)
        return self._parts[category]

    def _cut(self, kept: BoolArray) -> Pool:
        part = Pool(self._requests[index] for index in np.flatnonzero(kept).tolist())
        part._cut_from = self, kept
        return part

    @cached_property
    def _categories(self) -> tuple[str, ...]:
        return tuple(request.category for request in self._requests)

    @cached_property
    def categories(self) -> dict[str, Pool]:
        """Requests by the category of their prompt, categories in alphabetical order."""
        return {name: self.of_category(name) for name in sorted(set(self._categories))}

    @cached_property
    def weakest(self) -> Evidence:
        """The evidence that all requests have; NONE when there are none."""
        return min((request.evidence for request in self._requests), default=Evidence.NONE)

    @cached_property
    def by_prompt(self) -> dict[PromptKey, list[RequestSums]]:
        """Requests whose decode time and tokens are known, by prompt and in block order."""
        found: dict[PromptKey, list[RequestSums]] = {}
        for request in sorted(self._requests, key=operator.attrgetter("block")):
            if request.decode_ns is not None and (request.decode_tokens or 0) > 0:
                found.setdefault(request.prompt, []).append(request)
        return found

    @cached_property
    def histograms(self) -> IntArray:
        """Steps by accepted drafts, shape (requests, deepest + 1); zeros where not known."""
        return _padded([request.histogram or () for request in self._requests])

    @cached_property
    def at_risk(self) -> IntArray:
        """``at_risk`` of each request, shape (requests, deepest); zeros where not known."""
        return _padded([request.at_risk or () for request in self._requests])

    @cached_property
    def chunk_gaps_ns(self) -> IntArray:
        """Times between successive deliveries of one request, for all requests in a row."""
        counts = np.array([len(request.arrived) for request in self._requests], dtype=np.int64)
        if not counts.any():
            return np.zeros(0, dtype=np.int64)
        at_ns = np.concatenate([request.arrived.at_ns for request in self._requests])
        inside: BoolArray = np.ones(len(at_ns), dtype=np.bool_)
        inside[(np.cumsum(counts) - counts)[counts > 0]] = False
        return np.diff(at_ns, prepend=at_ns[:1])[inside]

    def steps(self, name: str) -> IntArray:
        """A column of all verify steps, request by request (``columns.COUNTS``)."""
        found = [request.steps.column(name) for request in self._requests]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    @cached_property
    def _owners(self) -> tuple[IntArray, int]:
        """The conversation of each request, numbered in order of appearance, and their number."""
        return numbered([request.conversation for request in self._requests])

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> RequestSums: ...

    @overload
    def __getitem__(self, index: slice) -> Pool: ...

    def __getitem__(self, index: int | slice) -> RequestSums | Pool:
        if isinstance(index, slice):
            return Pool(self._requests[index])
        return self._requests[index]

    def __iter__(self) -> Iterator[RequestSums]:
        return iter(self._requests)


def numbered(keys: Sequence[K]) -> tuple[IntArray, int]:
    """Each key's number in order of appearance, and how many there are.

    >>> owners, count = numbered(["b", "a", "b"])
    >>> owners.tolist(), count
    ([0, 1, 0], 2)
    """
    numbers: dict[K, int] = {}
    owners = [numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(owners, dtype=np.int64), len(numbers)


def add_up(owners: IntArray, count: int, columns: Iterable[FloatArray | IntArray]) -> FloatArray:
    """``columns`` summed by owner, of ``count`` that ``numbered`` found: shape (count, columns)."""
    return np.stack([np.bincount(owners, column, minlength=count) for column in columns], axis=1)


def _padded(rows: Sequence[Sequence[int]]) -> IntArray:
    """Rows of different length as one array, with zeros behind the short ones."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    table = np.zeros((len(rows), int(lengths.max(initial=0))), dtype=np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = [n for row in rows for n in row]
    return table
