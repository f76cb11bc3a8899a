import dataclasses

from specbench.metrics.summary import Summary
from specbench.report.plots.lengths import lengths
from tests.unit.report.plots.axes import drawn, line, texts, with_caveat
from tests.unit.report.sample_runs import CATEGORIES


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


def test_trees_alone_have_no_lengths_plot(summary: Summary) -> None:
    trees = tuple(arm for arm in summary.arms if arm.spec.topk > 1)
    bests = tuple(dataclasses.replace(best, arm=None) for best in summary.bests)
    only = dataclasses.replace(summary, arms=trees, bests=bests)
    assert lengths(only) is None
