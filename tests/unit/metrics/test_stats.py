import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.coverage import (
    bca,
    coverage,
    equal_tailed_studentised,
    symmetric_studentised,
    true_accept_length,
)
from specbench.metrics.stats import log_linear, percentile, resample_weights, student_t, wilson

SIMULATIONS = 1000
ACCEPTED = 0.935


@pytest.mark.parametrize("requests", [12, 30, 100])
def test_a_a_interval_holds_one_often_enough(requests: int) -> None:
    share = coverage(symmetric_studentised, requests=requests, simulations=SIMULATIONS, seed=11)
    assert share >= ACCEPTED


def test_accept_length_interval_holds_the_truth_often_enough() -> None:
    share = coverage(
        symmetric_studentised,
        requests=30,
        simulations=SIMULATIONS,
        seed=11,
        accept_length=true_accept_length(11),
    )
    assert share >= ACCEPTED


def test_other_bootstraps_cover_less() -> None:
    chosen, equal_tailed, corrected = (
        coverage(method, requests=12, simulations=300, seed=5)
        for method in (symmetric_studentised, equal_tailed_studentised, bca)
    )
    assert chosen > equal_tailed > corrected


def test_value_is_ratio_of_sums_not_mean_of_ratios() -> None:
    columns = np.array([[10.0, 1.0], [1.0, 1.0]])
    interval = log_linear(columns, (1, -1))
    assert interval is not None
    assert interval.value == pytest.approx(5.5)


def test_no_interval_under_twelve_units() -> None:
    rng = np.random.default_rng(0)
    eleven = log_linear(rng.uniform(1, 2, (11, 2)), (1, -1))
    twelve = log_linear(rng.uniform(1, 2, (12, 2)), (1, -1))
    assert eleven is not None
    assert (eleven.low, eleven.high, eleven.n) == (None, None, 11)
    assert twelve is not None
    assert twelve.low is not None
    assert twelve.low < twelve.value


def test_five_runs_may_give_an_interval() -> None:
    interval = log_linear(np.random.default_rng(0).uniform(1, 2, (5, 2)), (1, -1), least=5)
    assert interval is not None
    assert interval.high is not None


def test_units_that_agree_give_a_point() -> None:
    interval = log_linear(np.full((20, 2), 3.0), (1, -1))
    assert interval is not None
    assert (interval.low, interval.value, interval.high) == (1.0, 1.0, 1.0)


def test_paired_ratio_is_narrower_than_its_parts() -> None:
    rng = np.random.default_rng(2)
    length = rng.lognormal(3, 1, 40)
    first, second = length * rng.normal(1, 0.02, 40), length * rng.normal(1, 0.02, 40)
    tokens = np.ones(40)
    ratio = log_linear(np.stack([first, second], axis=1), (1, -1))
    alone = log_linear(np.stack([first, tokens], axis=1), (1, -1))
    assert ratio is not None
    assert alone is not None
    assert ratio.low is not None
    assert ratio.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert math.log(ratio.high / ratio.low) < 0.2 * math.log(alone.high / alone.low)


@pytest.mark.parametrize("columns", [np.zeros((0, 2)), np.array([[1.0, 0.0]] * 20)])
def test_undefined_ratio_is_none(columns: np.ndarray) -> None:
    assert log_linear(columns, (1, -1)) is None


def test_many_units_use_students_t() -> None:
    rng = np.random.default_rng(3)
    few, many = rng.normal(10, 1, (999, 2)), rng.normal(10, 1, (1000, 2))
    a, b = log_linear(few, (1, -1)), log_linear(many, (1, -1))
    assert a is not None
    assert b is not None
    assert a.high is not None
    assert b.high is not None
    assert b.high / b.value == pytest.approx(a.high / a.value, rel=1e-3)


def test_resamples_are_seeded_and_complete() -> None:
    weights = resample_weights(7)
    assert weights.shape == (2000, 7)
    assert np.all(weights.sum(axis=1) == 7)
    assert np.array_equal(weights, resample_weights.__wrapped__(7))


@pytest.mark.parametrize(("degrees", "expected"), [(4, 2.776), (11, 2.201), (29, 2.045)])
def test_student_t(degrees: int, expected: float) -> None:
    assert student_t(degrees) == pytest.approx(expected, abs=1e-3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_percentile_lies_between_samples(values: list[float], q: float) -> None:
    found = percentile(values, q)
    assert found is not None
    assert min(values) <= found <= max(values)


@given(st.integers(12, 500), st.data())
def test_wilson_holds_the_share(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    share = wilson(hits, n)
    assert share is not None
    assert share.low is not None
    assert share.high is not None
    assert 0 <= share.low <= share.value + 1e-12
    assert share.value - 1e-12 <= share.high <= 1


def test_wilson_without_outcomes() -> None:
    assert wilson(0, 0) is None
    few = wilson(1, 11)
    assert few is not None
    assert few.low is None
