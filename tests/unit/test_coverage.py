"""The benchmark's coverage as a test: A/A intervals hold 1, and a slowdown is found as promised."""

import numpy as np
import pytest

from benchmarks.coverage import coverage, symmetric_studentised
from benchmarks.speedup_power import found_and_advertised


@pytest.mark.parametrize("requests", [12, 30, 100])
def test_nominal_95_covers_at_least_935_of_1000_aa_runs(requests: int) -> None:
    share = coverage(symmetric_studentised, requests=requests, simulations=1000, seed=7)
    assert share >= 0.935


@pytest.mark.parametrize("requests", [12, 30, 100])
def test_a_slowdown_of_5_percent_is_found_as_often_as_advertised(requests: int) -> None:
    runs = 600
    found, advertised = found_and_advertised(requests, runs, 11, 0.05)
    assert found == pytest.approx(advertised, abs=0.02 + 2 * np.sqrt(0.25 / runs))
