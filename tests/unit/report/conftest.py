import pytest

from specbench.grid import Grid, expand
from specbench.metrics.summary import Summary, SummaryInput, summarise
from tests.unit.report.sample_runs import sample_input


@pytest.fixture(scope="session")
def given() -> SummaryInput:
    """A made-up sweep of ten points at batch sizes 1 and 4."""
    return sample_input()


@pytest.fixture(scope="session")
def summary(given: SummaryInput) -> Summary:
    """Its summary."""
    return summarise(given)


@pytest.fixture(scope="session")
def grid() -> Grid:
    """A grid of which two combinations are illegal."""
    return expand((0, 1, 2, 3, 4, 5), (1, 4), (8, 16))
