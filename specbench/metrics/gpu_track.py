"""The samples of one GPU in a block, asked by time windows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from specbench.gpu_samples import GpuSample
from specbench.metrics.arms import ArmKey

Window = tuple[int, int]  # from, to; ns of time.perf_counter_ns
Samples = Mapping[tuple[ArmKey, int], Sequence[GpuSample]]  # by arm and block


class Track:
    """Samples of one GPU, or one MIG instance, in order of time."""

    def __init__(self, samples: Iterable[GpuSample]) -> None:
        ordered = sorted(samples, key=lambda sample: sample.at_ns)
        self._samples = ordered
        self._times = [sample.at_ns for sample in ordered]
        self._sums = [(s.at_ns, s.energy_j) for s in ordered if s.energy_j is not None]

    @property
    def is_instance(self) -> bool:
        """True for a MIG instance, which has no energy of its own."""
        return self._samples[0].is_instance

    def inside(self, window: Window) -> Sequence[GpuSample]:
        """Samples in ``window``; one at its very start speaks of the time before."""
        start, end = (bisect_right(self._times, edge) for edge in window)
        return self._samples[start:end]

    def energy_j(self, window: Window) -> float | None:
        """Joules in ``window``; None unless samples enclose it.

        The running sum at each end lies on the line between the samples around it.

        >>> sums = ((0, 0.0), (10, 5.0), (20, 25.0))
        >>> track = Track(GpuSample(at_ns=t, gpu="0", energy_j=j) for t, j in sums)
        >>> track.energy_j((5, 15)), track.energy_j((10, 10)), track.energy_j((5, 21))
        (12.5, 0.0, None)
        """
        start, end = (self._sum_at(edge) for edge in window)
        return None if start is None or end is None else end - start

    def _sum_at(self, at_ns: int) -> float | None:
        place = bisect_left(self._sums, (at_ns,))
        if place < len(self._sums) and self._sums[place][0] == at_ns:
            return self._sums[place][1]
        if place in (0, len(self._sums)):
            return None
        (t0, j0), (t1, j1) = self._sums[place - 1], self._sums[place]
        return j0 + (j1 - j0) * (at_ns - t0) / (t1 - t0)


def tracks(samples: Iterable[GpuSample]) -> dict[str, Track]:
    """The track of each GPU in ``samples``."""
    found: dict[str, list[GpuSample]] = {}
    for sample in samples:
        found.setdefault(sample.gpu, []).append(sample)
    return {gpu: Track(its) for gpu, its in found.items()}
