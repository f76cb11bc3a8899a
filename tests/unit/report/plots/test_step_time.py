from matplotlib.patches import Rectangle

from specbench.metrics.summary import Summary
from specbench.report.plots.step_time import step_time
from tests.unit.report.plots.axes import drawn


def test_step_time_bars_add_up(summary: Summary) -> None:
    panels = drawn(step_time(summary))
    arms = summary.of_cell(summary.headline.cell)
    ends: dict[int, float] = {}
    for bar in panels[0].patches:
        assert isinstance(bar, Rectangle)
        row = round(bar.get_y() + bar.get_height() / 2)
        ends[row] = max(ends.get(row, 0.0), bar.get_x() + bar.get_width())
    for row, arm in enumerate(arms):
        assert arm.total.split is not None
        assert abs(ends[row] - arm.total.split.step_ms) < 1e-9
