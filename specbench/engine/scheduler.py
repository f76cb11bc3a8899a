"""Who runs: a queue, and the lanes of the running sequences, kept dense."""

from __future__ import annotations

from collections import deque

from specbench.engine.batch import Handle, Sequence
from specbench.errors import EngineError


class Scheduler:
    """First come, first served, up to ``batch_size`` sequences in lanes 0..B-1."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def idle(self) -> bool:
        """True when nothing waits and nothing runs."""
        return not self.waiting and not self.running

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.append(sequence)

    def admit(self) -> Sequence | None:
        """Give the next waiting sequence the next lane, if one is free."""
        if not self.waiting or len(self.running) >= self.batch_size:
            return None
        sequence = self.waiting.popleft()
        sequence.lane = len(self.running)
        self.running.append(sequence)
        return sequence

    def find(self, handle: Handle) -> Sequence | None:
        """The sequence of a handle, waiting or running."""
        for sequence in (*self.running, *self.waiting):
            if sequence.handle == handle:
                return sequence
        return None

    def leave(self, sequence: Sequence) -> tuple[int, int, int] | None:
        """Take a sequence out and let the last lane fill its place.

        Returns:
            (from lane, to lane, slots) to move in the caches, or None.
        """
        if sequence.lane < 0:
            self.waiting.remove(sequence)
            return None
        last = self.running.pop()
        freed, sequence.lane = sequence.lane, -1
        if last is sequence:
            return None
        self.running[freed] = last
        source, last.lane = last.lane, freed
        return source, freed, last.committed

    def audit(self, capacity: int) -> None:
        """Check that lanes are dense and lengths agree (invariant I1).

        Raises:
            EngineError: names the lane that does not fit.
        """
        for lane, sequence in enumerate(self.running):
            if sequence.lane != lane:
                raise EngineError(f"lane {lane} holds a sequence that believes in {sequence.lane}.")
            if sequence.committed != sequence.length - 1:
                raise EngineError(
                    f"lane {lane}: {sequence.committed} tokens in the cache of {sequence.length}.",
                    expected="All but the last, which is the root of the next tree.",
                )
            if sequence.committed > capacity:
                raise EngineError(f"lane {lane}: {sequence.committed} slots of {capacity}.")
        if len(self.running) > self.batch_size:
            raise EngineError(f"{len(self.running)} lanes run, {self.batch_size} are allowed.")
