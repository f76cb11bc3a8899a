from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.dashboards.stand_in import StandIn, grafana_stand_in


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A Grafana that is empty."""
    with grafana_stand_in() as state:
        yield state
