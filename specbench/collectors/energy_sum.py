"""Adds up the energy of one GPU: from its counter, or from power where there is none."""

from __future__ import annotations

_NS_PER_S = 1e9


class EnergySum:
    """Joules since the first reading; they never fall, whatever the counter does.

    ``was_reset`` is set when the counter began anew (a driver was loaded again, a GPU was reset);
    what passed since the reading before is then taken from power, or from the new counter alone.
    """

    def __init__(self) -> None:
        self.was_reset = False
        self._joules = 0.0
        self._counter_j: float | None = None
        self._power: tuple[int, float] | None = None
        self._not_added = 0.0  # energy by power since the last sum

    def add(
        self, at_ns: int, counter_j: float | None, power_w: float | None, *, has_counter: bool
    ) -> float | None:
        """The sum at ``at_ns``; None when this reading does not tell it, which is made up later.

        >>> energy = EnergySum()
        >>> [energy.add(t, j, None, has_counter=True) for t, j in enumerate((70.0, None, 82.5))]
        [0.0, None, 12.5]
        >>> energy = EnergySum()
        >>> [energy.add(t * 10**9, None, w, has_counter=False) for t, w in ((0, 100.0), (2, 300.0))]
        [0.0, 400.0]
        """
        if power_w is not None:
            if self._power is not None:
                then_ns, then_w = self._power
                self._not_added += (at_ns - then_ns) / _NS_PER_S * (then_w + power_w) / 2
            self._power = at_ns, power_w
        if has_counter:
            return None if counter_j is None else self._add(self._by_counter(counter_j))
        return None if power_w is None else self._add(self._not_added)

    def _by_counter(self, counter_j: float) -> float:
        before, self._counter_j = self._counter_j, counter_j
        if before is None:
            return 0.0
        if counter_j >= before:
            return counter_j - before
        self.was_reset = True
        return self._not_added or counter_j

    def _add(self, joules: float) -> float:
        self._joules += joules
        self._not_added = 0.0
        return self._joules
