"""What each drawing shows, read back from its axes; how they look is checked by eye."""

import dataclasses

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specbench.estimate import Caveat, Severity
from specbench.metrics.result import ArmResult
from specbench.metrics.summary import Summary
from specbench.report.plots.heatmap import heatmap
from specbench.report.plots.lengths import lengths
from specbench.report.plots.positions import positions
from specbench.report.plots.step_time import step_time
from tests.unit.report.sample_runs import CATEGORIES

BAD = Caveat(code="incomparable_baseline", severity=Severity.INVALID, text="")


def drawn(figure: Figure | None) -> list[Axes]:
    assert figure is not None
    return [axes for axes in figure.axes if axes.get_visible()]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = (line for line in axes.lines if line.get_label() == label)
    x, y = np.asarray(found.get_xydata(), dtype=np.float64).T
    return list(x), list(y)


def span(figure: Figure | None) -> tuple[float, float]:
    low, high = drawn(figure)[0].images[0].get_clim()
    assert low is not None
    assert high is not None
    return float(low), float(high)


def with_caveat(summary: Summary, point_id: str) -> Summary:
    def marked(arm: ArmResult) -> ArmResult:
        bad = arm.key.point_id == point_id
        return dataclasses.replace(arm, caveats=(BAD,)) if bad else arm

    return dataclasses.replace(summary, arms=tuple(marked(arm) for arm in summary.arms))


def test_heatmap_has_a_tile_per_speedup(summary: Summary) -> None:
    panels = drawn(heatmap(summary))
    assert [axes.get_title() for axes in panels] == ["batch size 1", "batch size 4"]
    assert "1.96x" in texts(panels[0])
    assert "1.74 – 2.22" in texts(panels[0])
    assert sum(text.endswith("x") for text in texts(panels[0])) == 9
    assert [t.get_text() for t in panels[0].get_xticklabels()] == [
        "chain",
        "topk 4\n8 tokens",
        "topk 4\n16 tokens",
    ]


def test_heatmap_scale_is_centred_and_ignores_invalid_points(summary: Summary) -> None:
    best = summary.headline.arm
    assert best is not None
    marked = heatmap(with_caveat(summary, best.key.point_id))
    low, high = span(heatmap(summary))
    assert low == -high
    assert span(marked)[1] < high
    assert "incomparable\nbaseline" in texts(drawn(marked)[0])


def test_lengths_draw_a_line_per_category(summary: Summary) -> None:
    left, right = drawn(lengths(summary))
    labels = {str(drawn_line.get_label()) for drawn_line in left.lines} | {
        str(c.get_label()) for c in left.containers
    }
    assert {*CATEGORIES, "break-even", "all"} <= labels
    assert line(left, "prose")[0] == [1, 2, 3, 4, 5]
    assert "no speculation" in texts(right)


def test_incomparable_speedup_is_left_out_of_the_lines(summary: Summary) -> None:
    left, right = drawn(lengths(with_caveat(summary, "k2")))
    assert line(right, "prose")[0] == [1, 3, 4, 5]
    assert line(left, "prose")[0] == [1, 2, 3, 4, 5]


def test_positions_show_the_deepest_chain_and_the_fastest_tree(summary: Summary) -> None:
    left, right = drawn(positions(summary))
    k5 = next(arm for arm in summary.arms if arm.key.point_id == "k5")
    assert tuple(line(left, "all")[1]) == k5.total.survival
    assert any("5/4/16" in str(drawn_line.get_label()) for drawn_line in right.lines)


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


def test_trees_alone_have_no_lengths_plot(summary: Summary) -> None:
    trees = tuple(arm for arm in summary.arms if arm.spec.topk > 1)
    bests = tuple(dataclasses.replace(best, arm=None) for best in summary.bests)
    only = dataclasses.replace(summary, arms=trees, bests=bests)
    assert lengths(only) is None
    assert positions(only) is not None
