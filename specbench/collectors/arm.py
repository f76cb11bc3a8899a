"""What one arm has counted: the object that a block looks up once and adds to."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from specbench.backends.base import Event
from specbench.collectors import catalogue as c
from specbench.collectors import text
from specbench.collectors.points import Cell
from specbench.columns import IntArray
from specbench.metrics.latency import chunk_gaps_ns, tpot_ns, ttft_ns
from specbench.metrics.looping import is_looping
from specbench.metrics.sums import RequestSums, arrival_sums, is_complete, sums_of
from specbench.request import Request
from specbench.trace import Chunk, Finish, RequestTrace, StepTrace

UNKNOWN = "unknown"
_NS_PER_S = 1_000_000_000
_PARTS = ("draft", "extend", "verify", "other")
_FORWARDS = 4096


class Bins:
    """A histogram of times. Whole nanoseconds, so that sums are exact."""

    __slots__ = ("_bounds_ns", "counts", "total_ns")

    def __init__(self, series: c.Series) -> None:
        self._bounds_ns = [round(bound * _NS_PER_S) for bound in series.buckets]
        self.counts = [0] * (len(series.buckets) + 1)
        self.total_ns: float = 0

    def add(self, time_ns: float) -> None:
        """One observation."""
        self.counts[bisect_left(self._bounds_ns, time_ns)] += 1
        self.total_ns += time_ns

    def add_all(self, times_ns: IntArray) -> None:
        """Many at once, shape (observations,)."""
        places = np.searchsorted(self._bounds_ns, times_ns)
        for place, count in enumerate(np.bincount(places).tolist()):
            self.counts[place] += count
        self.total_ns += int(times_ns.sum())

    def lines(self, series: c.Series, of: str) -> Iterator[str]:
        """As lines, in seconds; ``of`` are the labels."""
        return text.histogram(series, of, self.counts, self.total_ns / _NS_PER_S)


class ArmRecord:
    """Counts of one arm; a ``Watch`` of ``run.run_block``.

    Args:
        cell: what runs.
        point: the label.
        end_ids: the target's end tokens.
    """

    def __init__(self, cell: Cell, point: str, end_ids: Sequence[int] = ()) -> None:
        self.cell, self.point = cell, point
        self._end_ids = end_ids
        self._labels = text.labels(c.ARM, (cell.arm, point))
        # Steps by depth and by accepted drafts: all counters by position follow from these two.
        self._depths = [0] * (c.MOST_POSITIONS + 1)
        self._accepted = [0] * (c.MOST_POSITIONS + 1)
        self._drafted = self._emitted = self._output = self._prompt = self._looping = 0
        # Of servers that give sums only: steps and accepted drafts whose positions are not known.
        self._unplaced_steps = self._unplaced_accepted = 0
        self._outcomes: Counter[Finish] = Counter()
        self._step = Bins(c.STEP_SECONDS)
        self._parts = tuple(Bins(c.PART_SECONDS) for _ in _PARTS)
        self._ttft, self._tpot, self._gap = (
            Bins(series) for series in (c.TTFT_SECONDS, c.TPOT_SECONDS, c.GAP_SECONDS)
        )
        self._timed: list[tuple[int, int, int, int]] = []
        self._recent: set[int] = set()
        self._older: set[int] = set()
        self._lines: dict[str, bytes] | None = None

    def begin(self) -> None:
        """A block begins: the numbers of its forwards may repeat those of an earlier block."""
        self._recent, self._older = set(), set()

    def event(self, request: Request, event: Event) -> None:
        """Count what a measured request delivers."""
        if isinstance(event, StepTrace):
            self.step(event)
        elif isinstance(event, Chunk) and event.tokens:
            self._output += event.tokens
            self._lines = None

    def step(self, step: StepTrace) -> None:
        """Count one verify step, and its forward when this is the first step seen of it."""
        self._lines = None
        depth, accepted = step.depth, step.accepted
        if depth > c.MOST_POSITIONS:  # a server that drafts deeper than it was asked to
            depth, accepted = c.MOST_POSITIONS, min(accepted, c.MOST_POSITIONS)
            self._unplaced_accepted += step.accepted - accepted
        self._depths[depth] += 1
        self._accepted[accepted] += 1
        self._drafted += step.drafted
        self._emitted += step.emitted
        if step.batch == 1 or self._first_of(step.batch_step):  # alone: it is the forward
            self._timed.append((step.draft_ns, step.extend_ns, step.verify_ns, step.other_ns))
            if len(self._timed) >= _FORWARDS:
                self._sort_times()

    def _sort_times(self) -> None:
        """Put the forwards seen since the last time into their bins; untimed ones are left out."""
        times = np.array(self._timed, dtype=np.int64).reshape(-1, len(_PARTS))
        self._timed.clear()
        walls = times.sum(axis=1)
        self._step.add_all(walls[walls > 0])
        for bins, column in zip(self._parts, times[walls > 0].T, strict=True):
            bins.add_all(column)

    def _first_of(self, batch_step: int) -> bool:
        """True once per forward. Its steps arrive close together, so old numbers are dropped."""
        if batch_step in self._recent or batch_step in self._older:
            return False
        if len(self._recent) >= _FORWARDS:
            self._recent, self._older = set(), self._recent
        self._recent.add(batch_step)
        return True

    def trace(self, trace: RequestTrace) -> None:
        """Count what is known only when a measured request has ended."""
        if trace.warmup:
            return
        self._lines = None
        sums = arrival_sums(trace) if trace.steps else sums_of(trace)  # steps are counted
        self._outcomes[trace.finish] += 1
        self._prompt += trace.usage.prompt_tokens or 0
        # Deliveries were counted as they came; a server may have said only now what they held.
        said = sums.arrived.tokens
        counted = int(said[said > 0].sum())
        self._output += max(0, (sums.completion or 0) - counted)
        if not trace.steps:
            self._totals(sums)
        if is_complete(trace):
            self._looping += bool(is_looping(trace, self._end_ids))
            self._latencies(sums)

    def _totals(self, sums: RequestSums) -> None:
        """Count the steps of a server that gives a request's sums."""
        self._drafted += sums.drafted or 0
        if sums.histogram is not None:
            for accepted, steps in enumerate(sums.histogram):
                placed = min(accepted, c.MOST_POSITIONS)
                self._accepted[placed] += steps
                self._unplaced_accepted += steps * (accepted - placed)
        else:
            self._unplaced_steps += sums.verify_steps or 0
            self._unplaced_accepted += sums.accepted or 0

    def _latencies(self, sums: RequestSums) -> None:
        for bins, time_ns in ((self._ttft, ttft_ns(sums)), (self._tpot, tpot_ns(sums))):
            if time_ns is not None:
                bins.add(time_ns)
        self._gap.add_all(chunk_gaps_ns(sums))

    def lines(self) -> Mapping[str, bytes]:
        """The lines of each family that has some, by its name; kept until something is counted."""
        if self._lines is None:
            self._sort_times()
            self._lines = {
                series.name: "".join(written).encode() for series, written in self._families()
            }
        return self._lines

    def _families(self) -> Iterator[tuple[c.Series, Iterator[str]]]:
        steps = sum(self._accepted) + self._unplaced_steps
        yield c.POINT_INFO, self._info()
        for series, value in (
            (c.VERIFY_STEPS, steps),
            (c.DRAFTED, self._drafted),
            (c.EMITTED, self._emitted),
            (c.OUTPUT, self._output),
            (c.PROMPT, self._prompt),
            (c.LOOPING, self._looping),
        ):
            yield series, iter((text.sample(series.name, self._labels, value),))
        # By position only where that of every step is known: 0 would say that none was reached.
        if sum(self._depths) == steps:
            yield c.DRAFTED_AT, self._positions(c.DRAFTED_AT, self._depths)
        yield c.ACCEPTED_AT, self._accepted_at()
        yield c.REQUESTS, self._requests()
        yield c.ACCEPTED, self._accepted_per_step()
        for series, bins in (
            (c.STEP_SECONDS, self._step),
            (c.TTFT_SECONDS, self._ttft),
            (c.TPOT_SECONDS, self._tpot),
            (c.GAP_SECONDS, self._gap),
        ):
            yield series, bins.lines(series, self._labels)
        yield c.PART_SECONDS, self._part_times()

    def _info(self) -> Iterator[str]:
        cell, spec = self.cell, self.cell.spec
        values = (
            cell.arm, self.point, spec.num_steps, spec.topk, spec.num_draft_tokens, cell.batch_size,
            "" if cell.temperature is None else f"{cell.temperature:g}", cell.workload or "",
        )  # fmt: skip
        yield text.sample(c.POINT_INFO.name, text.labels(c.POINT_INFO.labels, values), 1)

    def _positions(self, series: c.Series, steps_by: Sequence[int]) -> Iterator[str]:
        """Steps that reached each position, from the steps that ended at each."""
        deepest = max((i for i, steps in enumerate(steps_by) if steps), default=0)
        last = max(deepest, self.cell.spec.num_steps)
        reached = list(itertools.accumulate(reversed(steps_by[1 : last + 1])))
        for position, steps in enumerate(reversed(reached), start=1):
            yield text.sample(series.name, f'{self._labels},position="{position}"', steps)

    def _accepted_at(self) -> Iterator[str]:
        series = c.ACCEPTED_AT
        if not self._unplaced_steps:
            yield from self._positions(series, self._accepted)
        if self._unplaced_accepted:
            of = f'{self._labels},position="{UNKNOWN}"'
            yield text.sample(series.name, of, self._unplaced_accepted)

    def _requests(self) -> Iterator[str]:
        for finish in Finish:
            of = f'{self._labels},outcome="{finish.value}"'
            yield text.sample(c.REQUESTS.name, of, self._outcomes[finish])

    def _accepted_per_step(self) -> Iterator[str]:
        bounds = len(c.ACCEPTED.buckets)
        counts = [*self._accepted[:bounds], sum(self._accepted[bounds:])]
        total = sum(accepted * steps for accepted, steps in enumerate(self._accepted))
        return text.histogram(c.ACCEPTED, self._labels, counts, total)

    def _part_times(self) -> Iterator[str]:
        for part, bins in zip(_PARTS, self._parts, strict=True):
            yield from bins.lines(c.PART_SECONDS, f'{self._labels},part="{part}"')
