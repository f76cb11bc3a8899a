from __future__ import annotations

from specbench.collectors import catalogue as cat
from specbench.dashboards.gpu import gpu_rows
from specbench.dashboards.promql import Scope


def test_every_gpu_series_is_shown() -> None:
    panels = [panel for row in gpu_rows(Scope()) for panel, _ in row.panels]
    shown = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    for name in cat.CATALOGUE:
        if name.startswith(f"{cat.PREFIX}gpu_"):
            assert name in shown


def test_rows_are_filled() -> None:
    assert [sum(width for _, width in row.panels) for row in gpu_rows(Scope())] == [24, 24]
