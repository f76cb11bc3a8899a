"""Accept length and speedup of chains against num_steps: a line per category, intervals on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specbench.estimate import Estimate
from specbench.metrics.figures import ALL, ArmResult, Figures
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.plots.style import (
    GREY,
    INK,
    chains,
    colour,
    line_at,
    marker,
    named,
    new_figure,
    smallest_batches,
)

MOST_TICKS = 12

Pick = Callable[[Figures], Estimate | None]


def lengths(summary: Summary) -> Figure | None:
    """Two panels for each workload and temperature, at its smallest batch size."""
    cells = [cell for cell in smallest_batches(summary) if chains(summary.of_cell(cell))]
    if not cells:
        return None
    figure = new_figure(8.6, 0.3 + 3.3 * len(cells))
    panels = figure.subplots(len(cells), 2, squeeze=False)
    for (left, right), cell in zip(panels, cells, strict=True):
        arms = chains(summary.of_cell(cell))
        place = wording.apart(cell, [*cells, cell])
        _lines(left, arms, lambda seen: seen.accept_length)
        _break_even(left, arms)
        left.set_title(f"Accept length, {place}")
        left.set_ylabel("tokens per verify step")
        left.set_ylim(bottom=0.9)
        _lines(right, [arm for arm in arms if _comparable(arm)], lambda seen: seen.speedup)
        line_at(right, 1.0, "no speculation")
        right.set_title(f"Speedup, {place}")
        right.set_ylabel("times as fast as no speculation")
        depths = sorted({arm.spec.num_steps for arm in arms})
        for axes in (left, right):
            axes.set_xlim(min(depths) - 0.3, max(depths) + 0.3)
            axes.set_xticks(depths if len(depths) <= MOST_TICKS else depths[:: len(depths) // 8])
        low, high = right.get_ylim()
        right.set_ylim(min(low, 1.0 - 0.08 * (high - low)), high)
        handles, names = left.get_legend_handles_labels()
        right.legend(handles[::-1], names[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _comparable(arm: ArmResult) -> bool:
    """A baseline that is not comparable gives a ratio that would only spoil the scale."""
    return all(caveat.code != "incomparable_baseline" for caveat in arm.caveats)


def _lines(axes: Axes, arms: Sequence[ArmResult], pick: Pick) -> None:
    categories = sorted({seen.category for arm in arms for seen in arm.categories})
    for index, category in enumerate(categories):
        found = [
            (arm.spec.num_steps, value.value)
            for arm in arms
            for seen in arm.categories
            if seen.category == category and (value := pick(seen)) is not None
        ]
        if found:
            axes.plot(
                *zip(*found, strict=True),
                color=colour(index),
                marker=marker(index),
                label=named(category),
                alpha=0.9,
            )
    _with_intervals(axes, arms, pick)
    axes.set_xlabel("num_steps (chain)")


def _with_intervals(axes: Axes, arms: Sequence[ArmResult], pick: Pick) -> None:
    found = [(arm.spec.num_steps, v) for arm in arms if (v := pick(arm.total)) is not None]
    if not found:
        return
    below = [v.value - (v.value if v.low is None else v.low) for _, v in found]
    above = [(v.value if v.high is None else v.high) - v.value for _, v in found]
    axes.errorbar(
        [depth for depth, _ in found],
        [value.value for _, value in found],
        yerr=[below, above],
        color=INK,
        linewidth=2.4,
        elinewidth=1.2,
        capsize=3,
        marker="o",
        label=ALL,
        zorder=3,
    )


def _break_even(axes: Axes, arms: Sequence[ArmResult]) -> None:
    """The accept length under which a chain of that depth is slower than plain decoding."""
    found = [
        (arm.spec.num_steps, arm.total.decomposition.break_even_accept_length)
        for arm in arms
        if arm.total.decomposition is not None and _comparable(arm)
    ]
    if found:
        axes.plot(
            *zip(*found, strict=True),
            color=GREY,
            linestyle="--",
            linewidth=1.4,
            marker="_",
            markersize=9,
            label="break-even",
        )
