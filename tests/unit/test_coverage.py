"""The benchmark's coverage as a test: A/A intervals hold 1, and a slowdown is found as promised."""

import numpy as np
import pytest

from benchmarks.coverage import coverage, symmetric_studentised
from benchmarks.speedup_power import found_and_advertised
from specbench.metrics.stats import log_linear


@pytest.mark.parametrize("requests", [12, 30, 100])
def test_nominal_95_covers_at_least_935_of_1000_aa_runs(requests: int) -> None:
    share = coverage(symmetric_studentised, requests=requests, simulations=1000, seed=7)
    assert share >= 0.935


@pytest.mark.parametrize("blocks", [5, 6, 10])
def test_intervals_over_few_blocks_cover_and_stay_narrow(blocks: int) -> None:
    """Each block slows all requests of one arm by a factor of its own, beside their own noise."""
    generator, hits, widths = np.random.default_rng(3), 0, []
    for _ in range(1000):
        times = 100 * np.exp(generator.normal(0, 0.1, (blocks, 2)))
        times *= np.exp(generator.normal(0, 0.05, (blocks, 2, 4))).sum(2)
        found = log_linear(times, (1, -1), least=5)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1 <= found.high
        widths.append(found.high / found.low)
    assert hits >= 935
    assert np.quantile(widths, 0.99) < 2.5


@pytest.mark.parametrize("requests", [12, 30, 100])
def test_a_slowdown_of_5_percent_is_found_as_often_as_advertised(requests: int) -> None:
    runs = 600
    found, advertised = found_and_advertised(requests, runs, 11, 0.05)
    assert found == pytest.approx(advertised, abs=0.02 + 2 * np.sqrt(0.25 / runs))
