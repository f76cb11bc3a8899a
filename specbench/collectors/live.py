"""What is counted while requests run: verify steps, tokens, latencies, by arm.

Recording must not be seen in what it records, so a step costs a few additions of whole numbers
on an object that was looked up when its block began; series are made of them when somebody
scrapes. One thread: the event loop that runs the requests also answers the scrapes.

What is counted is what a run directory holds: the measured requests, without warm-up, failed
ones included. Steps count when they happen, so a block that is broken off (Ctrl-C) is in the
counters and not in the run directory. Counters begin at 0 in each process, also in a resumed
sweep: a jump to what an earlier process counted would be a burst to every ``rate()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specbench.collectors import catalogue as c
from specbench.collectors import text
from specbench.collectors.arm import ArmRecord
from specbench.collectors.points import Cell, name_points


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an engine in this process does now; None where it does not say."""

    running: int
    queued: int
    kv_used: int
    kv_slots: int
    graph_buckets: int | None = None


class Recorder:
    """All arms of one process.

    Args:
        run: the labels of ``specbench_run_info``.
        end_ids: the target's end tokens, for judging whether an output loops.
        state: asked at each scrape; None where the engine is not in this process.
    """

    def __init__(
        self,
        run: Mapping[str, str],
        *,
        end_ids: Sequence[int] = (),
        state: Callable[[], EngineState] | None = None,
    ) -> None:
        self._run = dict(run)
        self._end_ids = tuple(end_ids)
        self._state = state
        self._arms: dict[Cell, ArmRecord] = {}
        self._planned = self._saved = 0

    def register(self, cells: Iterable[Cell]) -> None:
        """Add arms, each at 0 from now on, so that no scraper misses an increase from nothing.

        A label that was given stays as it is.

        Raises:
            ConfigError: too many, or one that drafts too deep (``name_points``).
        """
        names = name_points([*self._arms, *cells])
        for cell, name in names.items():
            if cell not in self._arms:
                self._arms[cell] = ArmRecord(cell, name, self._end_ids)

    def begin(self, cell: Cell) -> ArmRecord:
        """The record of ``cell`` for a block that begins now, added when it is new.

        Raises:
            ConfigError: as ``register``.
        """
        if cell not in self._arms:
            self.register([cell])
        arm = self._arms[cell]
        arm.begin()
        return arm

    def plan(self, cells: Sequence[Cell], *, saved: int) -> None:
        """A sweep begins: the cell of each of its blocks, and how many were there already.

        The lines of all arms are written now, so that no block is held up by the first scrape.

        Raises:
            ConfigError: as ``register``.
        """
        self.register(cells)
        self._planned, self._saved = len(cells), saved
        for arm in self._arms.values():
            arm.lines()

    def block_saved(self) -> None:
        """One more block is on disk."""
        self._saved += 1

    def families(self) -> Iterator[tuple[c.Series, Sequence[bytes]]]:
        """Every family that has a sample, in the order of the catalogue, with its lines."""
        by_arm = [arm.lines() for arm in self._arms.values()]
        own = {series.name: line for series, line in self._own()}
        for series in c.CATALOGUE.values():
            if series.name in own:
                yield series, [own[series.name].encode()]
            else:
                yield series, [lines[series.name] for lines in by_arm if series.name in lines]

    def _own(self) -> Iterator[tuple[c.Series, str]]:
        """The families that have one line and no arm."""
        values = [self._run[name] for name in c.RUN_INFO.labels]
        yield c.RUN_INFO, text.sample(c.RUN_INFO.name, text.labels(c.RUN_INFO.labels, values), 1)
        for series, value in self._gauges():
            yield series, text.sample(series.name, "", value)

    def _gauges(self) -> Iterator[tuple[c.Series, float]]:
        if self._planned:
            yield c.BLOCKS, self._planned
            yield c.BLOCKS_DONE, self._saved
        if self._state is not None:
            state = self._state()
            yield c.RUNNING, state.running
            yield c.QUEUED, state.queued
            yield c.KV_USED, state.kv_used
            yield c.KV_SLOTS, state.kv_slots
            if state.graph_buckets is not None:
                yield c.GRAPH_BUCKETS, state.graph_buckets
