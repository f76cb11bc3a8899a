import dataclasses

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


def test_the_legend_lies_apart_from_the_title(summary: Summary) -> None:
    one = dataclasses.replace(summary, bests=summary.bests[:1])
    figure = step_time(one)
    assert figure is not None
    figure.draw_without_rendering()
    (legend,) = figure.legends
    title = next(text for text in figure.texts if text.get_text().startswith("Step time"))
    assert not legend.get_window_extent().overlaps(title.get_window_extent())


def test_only_plain_decoding_itself_is_the_line(summary: Summary) -> None:
    cell = summary.headline.cell
    plain, *others = summary.of_cell(cell)
    again = dataclasses.replace(plain, key=dataclasses.replace(plain.key, point_id="base-again"))
    one = dataclasses.replace(summary, arms=(plain, again, *others), bests=summary.bests[:1])
    (panel,) = drawn(step_time(one))
    assert len(panel.lines) == 1
