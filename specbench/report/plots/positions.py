"""Where drafts are lost: survival and conditional acceptance by position of the chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specbench.metrics.figures import ALL, ArmResult, Figures
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.plots.style import GREY, INK, chains, colour, marker, named, new_figure

Shares = Callable[[Figures], Sequence[float | None] | None]


def positions(summary: Summary) -> Figure | None:
    """The deepest chain of the headline's cell, a line per category; the fastest tree is dashed."""
    arms = summary.of_cell(summary.headline.cell)
    deepest = chains([arm for arm in arms if arm.total.survival])
    trees = [a for a in arms if a.spec.topk > 1 and a.total.survival and a.total.speedup]
    shown = deepest[-1] if deepest else next(iter(trees), None)
    if shown is None:
        return None
    tree = max(trees, key=_speedup, default=None)
    figure = new_figure(8.6, 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, shown, tree, lambda seen: seen.survival)
    left.set_title("Survival: steps that accept at least i drafts")
    left.set_ylabel("share of verify steps")
    _panel(right, shown, tree, lambda seen: seen.conditional)
    right.set_title("Conditional: of those that got to i - 1")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(
        f"{wording.settings(shown.spec)}, batch size {shown.key.cell.batch_size}",
        fontsize=9,
        x=0.01,
        ha="left",
    )
    return figure


def _speedup(arm: ArmResult) -> float:
    return arm.total.speedup.value if arm.total.speedup else 0.0


def _panel(axes: Axes, arm: ArmResult, tree: ArmResult | None, shares: Shares) -> None:
    for index, seen in enumerate(arm.categories):
        look = {"color": colour(index), "marker": marker(index)}
        _line(axes, shares(seen), label=named(seen.category), **look)
    _line(axes, shares(arm.total), color=INK, linewidth=2.4, marker="o", label=ALL, zorder=3)
    if tree is not None and tree is not arm:
        label = f"{ALL}, tree\n{wording.triple(tree.spec)}"
        _line(axes, shares(tree.total), color=GREY, linestyle="--", marker="o", label=label)
    axes.set_xlabel("draft position i")
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _line(axes: Axes, values: Sequence[float | None] | None, **look: object) -> None:
    known = [(i, v) for i, v in enumerate(values or (), start=1) if v is not None]
    if known:
        axes.plot(*zip(*known, strict=True), **look)  # type: ignore[arg-type]  # line properties
