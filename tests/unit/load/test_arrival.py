from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.config import Arrival, LoadConfig
from specbench.load.arrival import due_times_ns, offsets_ns

open_loads = st.builds(
    LoadConfig,
    request_rate=st.floats(0.1, 1000.0),
    arrival=st.just(Arrival.GAMMA),
    burstiness=st.floats(0.2, 20.0),
    seed=st.integers(0, 2**32),
)


@given(open_loads)
@settings(max_examples=50, deadline=None)
def test_sorted_from_zero_and_reproducible(load: LoadConfig) -> None:
    times = due_times_ns(load, 200)
    assert times[0] == 0
    assert list(times) == sorted(times)
    assert times == due_times_ns(load, 200)


@given(open_loads, st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_a_due_time_does_not_depend_on_how_many_are_drawn(load: LoadConfig, count: int) -> None:
    one_by_one = offsets_ns(load)
    assert due_times_ns(load, 60)[:count] == tuple(next(one_by_one) for _ in range(count))


@given(st.floats(0.5, 200.0), st.sampled_from([0.5, 1.0, 4.0]), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_mean_gap_is_the_inverse_of_the_rate(rate: float, shape: float, seed: int) -> None:
    load = LoadConfig(request_rate=rate, arrival=Arrival.GAMMA, burstiness=shape, seed=seed)
    count = 1000
    mean_s = due_times_ns(load, count + 1)[-1] / 1e9 / count
    # Six standard errors of a gamma mean: sd = mean / sqrt(shape).
    assert abs(mean_s * rate - 1) < 6 / (shape * count) ** 0.5


def test_burstiness_is_the_shape_of_the_gaps() -> None:
    def variation(shape: float) -> float:
        load = LoadConfig(request_rate=10.0, arrival=Arrival.GAMMA, burstiness=shape)
        times = due_times_ns(load, 4001)
        gaps = [b - a for a, b in pairwise(times)]
        mean = sum(gaps) / len(gaps)
        return float((sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5 / mean)

    assert variation(0.25) == pytest.approx(2.0, rel=0.15)
    assert variation(1.0) == pytest.approx(1.0, rel=0.1)
    assert variation(16.0) == pytest.approx(0.25, rel=0.1)


def test_poisson_is_gamma_of_shape_one() -> None:
    poisson = LoadConfig(request_rate=7.0, seed=3)
    gamma = LoadConfig(request_rate=7.0, seed=3, arrival=Arrival.GAMMA)
    assert due_times_ns(poisson, 50) == due_times_ns(gamma, 50)


def test_another_seed_gives_other_times() -> None:
    times = {due_times_ns(LoadConfig(request_rate=7.0, seed=seed), 5) for seed in range(5)}
    assert len(times) == 5


def test_constant_gaps_do_not_drift() -> None:
    load = LoadConfig(request_rate=3.0, arrival=Arrival.CONSTANT)
    assert next(islice(offsets_ns(load), 300_000, None)) == 10**14


def test_a_closed_loop_has_no_due_times() -> None:
    assert due_times_ns(LoadConfig(concurrency=4), 10) == ()
