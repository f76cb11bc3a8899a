import matplotlib as mpl
from matplotlib.figure import Figure

from specbench.metrics.arms import Cell
from specbench.metrics.summary import Summary
from specbench.report.plots.style import chains, new_figure, png, smallest_batches


def cell(workload: str, temperature: float, batch_size: int) -> Cell:
    return Cell(workload=workload, temperature=temperature, batch_size=batch_size)


def test_png_leaves_global_settings_alone(summary: Summary) -> None:
    before = dict(mpl.rcParams)
    assert png(lambda _: new_figure(2, 1), summary) is not None
    assert dict(mpl.rcParams) == before


def test_nothing_to_show_is_none(summary: Summary) -> None:
    def nothing(_: Summary) -> Figure | None:
        return None

    assert png(nothing, summary) is None


def test_chains_are_in_order_of_depth(summary: Summary) -> None:
    found = chains(summary.of_cell(summary.headline.cell)[::-1])
    assert [arm.spec.num_steps for arm in found] == [1, 2, 3, 4, 5]


def test_smallest_batch_of_each_workload_and_temperature(summary: Summary) -> None:
    assert smallest_batches(summary) == [summary.headline.cell]
