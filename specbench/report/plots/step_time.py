"""Where a step's time goes: its four parts for each point, beside a plain step."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specbench.metrics.figures import ArmResult
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.plots.style import (
    COLOURS,
    FAINT,
    GREY,
    new_figure,
)

PARTS = ("draft", "extend", "verify", "other")
SHADES = (COLOURS[1], COLOURS[5], COLOURS[0], "#b6bcc4")
PANELS_IN_A_ROW = 3


def step_time(summary: Summary) -> Figure | None:
    """Stacked bars, a panel per cell; the label says how many plain steps a step costs."""
    bests = [
        best
        for best in summary.bests
        if any(arm.total.split is not None for arm in summary.of_cell(best.cell))
    ]
    if not bests:
        return None
    across = min(len(bests), PANELS_IN_A_ROW)
    down = -(-len(bests) // across)
    most = max(len(summary.of_cell(best.cell)) for best in bests)
    figure = new_figure(1.4 + 3.8 * across, 1.2 + down * (0.6 + 0.27 * most))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    cells = [best.cell for best in bests]
    for axes, cell in zip(panels, cells, strict=False):
        timed = [arm for arm in summary.of_cell(cell) if arm.total.split is not None]
        _panel(axes, timed)
        axes.set_title(wording.apart(cell, cells))
    for axes in panels[len(bests) :]:
        axes.set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    # Below the panels: beside the title it has room in a row of three panels only.
    figure.legend(handles, names, loc="outside lower center", ncols=len(PARTS))
    figure.suptitle(
        "Step time by part (num_steps/topk/num_draft_tokens)", fontsize=10, x=0.01, ha="left"
    )
    return figure


def _panel(axes: Axes, arms: Sequence[ArmResult]) -> None:
    """Baseline on top. The number beside a bar is its length, in ms and in plain steps."""
    rows = range(len(arms))
    left = [0.0] * len(arms)
    for part, shade in zip(PARTS, SHADES, strict=True):
        widths = [getattr(arm.total.split, f"{part}_ms") for arm in arms]
        axes.barh(rows, widths, left=left, color=shade, label=part, height=0.72)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for row, (arm, total) in enumerate(zip(arms, left, strict=True)):
        parts = arm.total.decomposition
        plain = f" ({parts.break_even_accept_length:.2f}x plain)" if parts else ""
        axes.annotate(
            f"{total:.1f} ms{plain}",
            (total, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )
        if row == 0 and arm.spec.is_baseline:
            axes.axvline(total, color=GREY, linewidth=0.9, linestyle="--", zorder=0)
    labels = [
        f"{wording.named(arm)} plain" if arm.spec.is_baseline else wording.named(arm)
        for arm in arms
    ]
    axes.set_yticks(rows, labels)
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.set_xlim(0, max(left) * 1.5)
    axes.set_xlabel("ms per step at full batch")
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=FAINT)
    axes.tick_params(axis="y", length=0)
