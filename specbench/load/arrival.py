"""When the requests of an open loop are due: pure and seeded, decided before anything is sent."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

from specbench.config import Arrival, LoadConfig
from specbench.errors import ConfigError


def offsets_ns(load: LoadConfig) -> Iterator[int]:
    """Yield due times without end, in nanoseconds after the start of the measured window.

    The first request is due at once, so that the window opens with a send; each gap has the mean
    1 / ``request_rate``. A gap never depends on how many are drawn or on what the server does.
    Poisson is the gamma distribution of shape 1, so both give the same times for one seed.
    A closed loop has no due times: nothing is yielded.

    Raises:
        ConfigError: the arrivals are those of a trace, which only its reader knows.

    >>> load = LoadConfig(request_rate=4.0, arrival=Arrival.CONSTANT)
    >>> list(islice(offsets_ns(load), 4))
    [0, 250000000, 500000000, 750000000]
    """
    if load.request_rate is None:
        return iter(())
    if load.arrival is Arrival.TRACE:
        raise ConfigError("arrival=trace without its times.", todo="Give them with the requests.")
    if load.arrival is Arrival.CONSTANT:
        return _constant(load.request_rate)
    shape = load.burstiness if load.arrival is Arrival.GAMMA else 1.0
    scale_ns = 1e9 / (load.request_rate * shape)
    draw = random.Random(load.seed)
    return _summed(lambda: draw.gammavariate(shape, scale_ns))


def due_times_ns(load: LoadConfig, count: int) -> tuple[int, ...]:
    """The first ``count`` due times of ``offsets_ns``; empty for a closed loop."""
    return tuple(islice(offsets_ns(load), count))


def _constant(request_rate: float) -> Iterator[int]:
    """Multiples of the gap; multiplied and not summed, so that no rounding piles up."""
    index = 0
    while True:
        yield round(index * 1e9 / request_rate)
        index += 1


def _summed(gap_ns: Callable[[], float]) -> Iterator[int]:
    """Running sums of drawn gaps, from 0."""
    at_ns = 0.0
    while True:
        yield round(at_ns)
        at_ns += gap_ns()
