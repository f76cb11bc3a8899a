"""What lanes hold after their sequences have left, and which prompts can start from it.

Row i of the draft's cache pairs feature i with token i + 1. A prompt that agrees with a lane on
its first m tokens therefore finds m - 1 valid rows there; row m - 1 has to be made again, and that
needs the target's feature of position m - 1, so the target starts again there too (engine-spec
2.7, F25). One rule serves both caches: reuse m - 1 rows, read the prompt on from there.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids

from specbench.engine.batch import Sequence
from specbench.engine.drafter import Drafter
from specbench.engine.kv_cache import KVPool
from specbench.engine.scheduler import Move

Tokens = tuple[int, ...]


class Lanes:
    """Moves lanes in both caches; with ``reuse``, keeps what ended sequences left behind.

    Lanes 0 to ``count`` - 1 hold sequences or what they left; with ``reuse`` the pool has one more,
    through which two lanes change places.
    """

    def __init__(self, pool: KVPool, count: int, *, reuse: bool) -> None:
        self._pool, self._count, self._reuse = pool, count, reuse
        self._left: list[Tokens] = [()] * count
        self._age, self._time = [0] * count, 0

    def enter(self, sequence: Sequence, running: Ids[Sequence], drafter: Drafter) -> None:
        """Prepare the lane of an admitted sequence: take over the longest known prefix.

        Sets ``committed``, ``settled`` and ``cached_tokens`` of the sequence.
        """
        if not self._reuse:
            return
        lane = sequence.lane
        held = [(*s.prompt, *s.output)[: s.settled + 1] for s in running]
        held += self._left[len(running) :]
        rows = [max(common(tokens, sequence.prompt) - 1, 0) for tokens in held]
        source = max(range(self._count), key=rows.__getitem__)
        length = rows[source]
        oldest = min(range(lane, self._count), key=self._age.__getitem__)
        if oldest != lane:  # the lane that is taken gives up what was used longest ago
            self._swap(lane, oldest, max(len(self._left[lane]), len(self._left[oldest])), drafter)
            source = {lane: oldest, oldest: lane}.get(source, source)
        if length and source != lane:
            self._pool.move(source, lane, length)
            drafter.move(source, lane, length)
        self._left[lane] = ()
        sequence.committed = sequence.settled = sequence.cached_tokens = length

    def leave(
        self, sequence: Sequence, lane: int, moves: Ids[Move], drafter: Drafter, *, whole: bool
    ) -> None:
        """A sequence left ``lane``: follow the ``moves`` of the others.

        ``whole`` says that what it left is sound; else the lane is wiped.
        """
        if not whole:
            self.wipe([lane], drafter)
        if not self._reuse:
            for source, target, length in moves:
                self._pool.move(source, target, length)
                drafter.move(source, target, length)
            return
        tokens = (*sequence.prompt, *sequence.output)[: sequence.settled + 1]
        self._left[lane] = tokens if whole else ()
        self._time += 1
        self._age[lane] = self._time if whole else 0
        for source, target, length in moves:
            self._swap(source, target, max(length, len(tokens)), drafter)

    def wipe(self, lanes: Ids[int], drafter: Drafter) -> None:
        """Zero what is not sound: a value that is not finite would reach later sequences even from
        a masked column. A move copies a sequence's own slots, so lanes are wiped where they broke.
        """
        for lane in lanes:
            self._pool.clear(lane)
            drafter.clear(lane)

    def _swap(self, one: int, other: int, length: int, drafter: Drafter) -> None:
        """Let two lanes change places, with the draft's state of each."""
        for source, target in ((one, self._count), (other, one), (self._count, other)):
            self._pool.move(source, target, length)
            drafter.move(source, target, length)
        left, age = self._left, self._age
        left[one], left[other] = left[other], left[one]
        age[one], age[other] = age[other], age[one]


def common(one: Ids[int], other: Ids[int]) -> int:
    """Length of the longest common prefix.

    >>> common([1, 2, 3], [1, 2, 4, 5]), common([1], [1, 2]), common([], [1])
    (2, 1, 0)
    """
    shortest = min(len(one), len(other))
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shortest)
