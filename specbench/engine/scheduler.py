"""Who runs: a queue, the one sequence that prefills, and the lanes of those that decode.

Decoding sequences hold lanes 0..B-1, so the cache of a batch is a view; the sequence whose prompt
is being read holds lane B, and becomes part of the batch where it stands.
"""

from __future__ import annotations

from collections import deque

from specbench.engine.batch import Handle, Sequence
from specbench.errors import EngineError

Move = tuple[int, int, int]


class Scheduler:
    """First come, first served, up to ``batch_size`` sequences.

    A lane has room for the longest sequence that ``submit`` lets in, and for its speculative
    slots: a free lane is all that admission needs, and nothing is ever evicted in its middle.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.waiting: deque[Sequence] = deque()
        self.filling: Sequence | None = None
        self.running: list[Sequence] = []

    @property
    def idle(self) -> bool:
        """True when nothing waits, prefills or runs."""
        return not self.waiting and not self.running and self.filling is None

    @property
    def holders(self) -> list[Sequence]:
        """Sequences with a lane, in the order of lanes."""
        return self.running if self.filling is None else [*self.running, self.filling]

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.append(sequence)

    def admit(self) -> Sequence | None:
        """Give the next waiting sequence a lane to prefill in, if none prefills and one is free."""
        if self.filling or not self.waiting or len(self.running) >= self.batch_size:
            return None
        self.filling = sequence = self.waiting.popleft()
        sequence.lane = len(self.running)
        return sequence

    def join(self) -> None:
        """The prompt of the sequence that prefills has been read: it decodes from now on."""
        if self.filling is None:
            raise EngineError("no sequence is being prefilled.", expected="admit() before join().")
        self.running.append(self.filling)
        self.filling = None

    def find(self, handle: Handle) -> Sequence | None:
        """The sequence of a handle, wherever it is."""
        for sequence in (*self.holders, *self.waiting):
            if sequence.handle == handle:
                return sequence
        return None

    def leave(self, sequence: Sequence) -> list[Move]:
        """Take a sequence out; the last decoding lane fills its place, the prefilling one that.

        Returns:
            (from lane, to lane, slots) to move in the caches, in this order.
        """
        freed, sequence.lane = sequence.lane, -1
        if freed < 0:
            self.waiting.remove(sequence)
            return []
        if sequence is self.filling:
            self.filling = None
            return []
        moves, last = [], self.running.pop()
        if last is not sequence:
            self.running[freed] = last
            moves.append((last.lane, freed, last.committed))
            freed, last.lane = last.lane, freed
        if self.filling is not None:
            moves.append((self.filling.lane, freed, self.filling.committed))
            self.filling.lane = freed
        return moves

    def audit(self, capacity: int) -> None:
        """Check that lanes are dense and lengths agree (invariant I1).

        Raises:
            EngineError: names the lane that does not fit.
        """
        for lane, sequence in enumerate(self.holders):
            if sequence.lane != lane:
                raise EngineError(f"lane {lane} holds a sequence that believes in {sequence.lane}.")
            if sequence.committed > capacity:
                raise EngineError(f"lane {lane}: {sequence.committed} slots of {capacity}.")
            if sequence is not self.filling and sequence.committed != sequence.length - 1:
                raise EngineError(
                    f"lane {lane}: {sequence.committed} tokens in the cache of {sequence.length}.",
                    expected="All but the last, which is the root of the next tree.",
                )
        if self.filling is not None and self.filling.committed >= len(self.filling.prompt):
            raise EngineError(f"lane {self.filling.lane} has its whole prompt and does not decode.")
        if len(self.holders) > self.batch_size:
            raise EngineError(f"{len(self.holders)} lanes are held, {self.batch_size} are allowed.")
