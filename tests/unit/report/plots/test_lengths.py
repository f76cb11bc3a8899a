import dataclasses

from specbench.metrics.summary import Summary
from specbench.report.plots.lengths import lengths
from specbench.report.plots.positions import positions
from specbench.report.plots.style import png
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


def test_any_name_of_a_category_can_be_drawn(summary: Summary) -> None:
    """Dollar signs are no formula, a leading underscore hides no line, a break adds no line."""
    names = dict(zip(CATEGORIES, (r"$\bad$", "_x", "a\nb", "c", "d"), strict=True))
    arms = tuple(
        dataclasses.replace(
            arm,
            categories=tuple(
                dataclasses.replace(seen, category=names[seen.category]) for seen in arm.categories
            ),
        )
        for arm in summary.arms
    )
    odd = dataclasses.replace(summary, arms=arms)
    for draw in (lengths, positions):
        assert png(draw, odd) is not None
        legend = drawn(draw(odd))[1].get_legend()
        assert legend is not None
        assert {r"$\bad$", " _x", "a b"} <= {text.get_text() for text in legend.get_texts()}


def test_a_single_depth_is_one_tick_with_a_break_even_that_shows(summary: Summary) -> None:
    kept = tuple(arm for arm in summary.arms if arm.spec.num_steps in (0, 4))
    left, right = drawn(lengths(dataclasses.replace(summary, arms=kept)))
    assert list(left.get_xticks()) == list(right.get_xticks()) == [4]
    even = next(one for one in left.lines if one.get_label() == "break-even")
    assert even.get_marker() != "None"
