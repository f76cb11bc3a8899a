import dataclasses

from specbench.metrics.summary import Summary
from specbench.report.plots.positions import positions
from tests.unit.report.plots.axes import drawn, line


def test_positions_show_the_deepest_chain_and_the_fastest_tree(summary: Summary) -> None:
    left, right = drawn(positions(summary))
    k5 = next(arm for arm in summary.arms if arm.key.point_id == "k5")
    assert tuple(line(left, "all")[1]) == k5.total.survival
    assert any("5/4/16" in str(drawn_line.get_label()) for drawn_line in right.lines)


def test_trees_alone_are_shown(summary: Summary) -> None:
    trees = tuple(arm for arm in summary.arms if arm.spec.topk > 1)
    bests = tuple(dataclasses.replace(best, arm=None) for best in summary.bests)
    only = dataclasses.replace(summary, arms=trees, bests=bests)
    assert positions(only) is not None
