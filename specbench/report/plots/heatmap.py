"""Speedup over the grid: a row per num_steps, a column per tree shape, a panel per cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specbench.config import SpecConfig
from specbench.estimate import Estimate
from specbench.metrics.best import Best, invalid_code
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.plots.style import FAINT, GREY, INK, new_figure

Column = tuple[int, int]
Tile = tuple[SpecConfig, Estimate, str | None]
CHAIN: Column = (1, 0)
LEAST_SPAN = math.log2(1.25)
HEADROOM = 1.3
BEST = "#E69F00"
COLUMNS_IN_A_ROW = 8


def heatmap(summary: Summary) -> Figure | None:
    """Colours are centred at 1.0, on a scale where half as fast is as far as twice as fast.

    Invalid points stay grey: their figure must not set the scale.
    """
    tiles = {best.cell: _tiles(summary, best) for best in summary.bests}
    bests = [best for best in summary.bests if tiles[best.cell]]
    if not bests:
        return None
    everything = [tile for best in bests for tile in tiles[best.cell]]
    steps = sorted({spec.num_steps for spec, _, _ in everything}, reverse=True)
    columns = sorted({_column(spec) for spec, _, _ in everything})
    across = max(1, min(len(bests), COLUMNS_IN_A_ROW // len(columns)))
    down = -(-len(bests) // across)
    figure = new_figure(
        max(5.6, 1.1 + across * (0.7 + 1.0 * len(columns))), 0.7 + down * (1.0 + 0.52 * len(steps))
    )
    panels = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    norm = _scale([speedup.value for _, speedup, code in everything if code is None])
    for axes, best in zip(panels, bests, strict=False):
        _panel(axes, tiles[best.cell], best, steps, columns, norm)
        axes.set_title(wording.apart(best.cell, [b.cell for b in bests]))
    for axes in panels[len(bests) :]:
        axes.set_visible(False)
    for axes in panels[::across]:
        axes.set_ylabel("num_steps")
    figure.suptitle(
        "Speedup over no speculation, 95 % interval (framed: best, hatched: invalid)",
        fontsize=10,
        x=0.01,
        ha="left",
    )
    return figure


def _tiles(summary: Summary, best: Best) -> list[Tile]:
    """Point, speedup and the code that bars it, of every point of a cell that has a speedup."""
    return [
        (arm.spec, arm.total.speedup, invalid_code(arm))
        for arm in summary.of_cell(best.cell)
        if arm.total.speedup is not None
    ]


def _column(spec: SpecConfig) -> Column:
    """Chains share a column; trees stand by topk and num_draft_tokens."""
    return CHAIN if spec.topk == 1 else (spec.topk, spec.num_draft_tokens)


def _scale(values: Sequence[float]) -> Normalize:
    """Symmetric around log2(1.0), wide enough that text stays readable on every colour."""
    widest = max((abs(math.log2(value)) for value in values), default=0.0)
    span = HEADROOM * max(LEAST_SPAN, widest)
    return Normalize(-span, span)


def _panel(
    axes: Axes,
    tiles: Sequence[Tile],
    best: Best,
    steps: Sequence[int],
    columns: Sequence[Column],
    norm: Normalize,
) -> None:
    values = np.full((len(steps), len(columns)), np.nan)
    for spec, speedup, code in tiles:
        row, column = steps.index(spec.num_steps), columns.index(_column(spec))
        if code is None:
            values[row, column] = math.log2(speedup.value)
            is_best = best.arm is not None and best.arm.spec == spec
            _annotate(axes, speedup, (column, row), norm, is_best=is_best)
        else:
            _strike(axes, speedup, code, (column, row))
    axes.imshow(values, cmap="RdBu", norm=norm, aspect="auto")
    axes.set_facecolor("#f3f4f6")
    axes.grid(visible=False)
    # Plain decoding has a speedup only as its own second arm, the noise floor.
    axes.set_yticks(range(len(steps)), [str(step) if step else "0 again" for step in steps])
    labels = ["chain" if c == CHAIN else f"topk {c[0]}\n{c[1]} tokens" for c in columns]
    axes.set_xticks(range(len(columns)), labels)
    axes.tick_params(length=0)
    for edge in np.arange(0.5, len(columns) - 0.5):
        axes.axvline(edge, color="white", linewidth=2)
    for edge in np.arange(0.5, len(steps) - 0.5):
        axes.axhline(edge, color="white", linewidth=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _annotate(
    axes: Axes, speedup: Estimate, at: tuple[int, int], norm: Normalize, *, is_best: bool
) -> None:
    """The figure and, under it, its interval; the best point is framed."""
    red, green, blue, _ = colormaps["RdBu"](norm(math.log2(speedup.value)))
    ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else INK
    below = ""
    if speedup.low is not None and speedup.high is not None:
        below = f"{speedup.low:.2f} – {speedup.high:.2f}"
    _write(axes, at, f"{speedup.value:.2f}x", below, ink, bold=is_best)
    if is_best:
        axes.add_patch(_frame(at, 0.04, edgecolor=BEST, linewidth=2.2, zorder=4))


def _strike(axes: Axes, speedup: Estimate, code: str, at: tuple[int, int]) -> None:
    """An invalid point: hatched, with the code of its caveat."""
    axes.add_patch(_frame(at, 0.0, hatch="////", edgecolor=FAINT, linewidth=0))
    _write(axes, at, f"{speedup.value:.2f}x", code.replace("_", "\n"), GREY, bold=False)


def _frame(at: tuple[int, int], inset: float, **look: object) -> Rectangle:
    side = 1 - 2 * inset
    corner = (at[0] - 0.5 + inset, at[1] - 0.5 + inset)
    return Rectangle(corner, side, side, fill=False, **look)  # type: ignore[arg-type]  # patch looks


def _write(axes: Axes, at: tuple[int, int], top: str, below: str, ink: str, *, bold: bool) -> None:
    x, y = at
    weight = "bold" if bold else "normal"
    lift = 0.16 if below else 0.0
    axes.text(x, y - lift, top, ha="center", va="center", color=ink, fontsize=9, fontweight=weight)
    if below:
        axes.text(x, y + 0.23, below, ha="center", va="center", color=ink, fontsize=6.5)
