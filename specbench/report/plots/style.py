"""One look for all plots: colours that colour-blind readers tell apart, no global state."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from specbench.metrics.arms import Cell
from specbench.metrics.figures import ArmResult
from specbench.metrics.summary import Summary

DPI = 150
INK = "#1b1f24"
GREY = "#6e7781"
FAINT = "#d5d9de"
# Okabe and Ito's set without black and yellow, which are ink and too pale here.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LOOK: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "white",
    "text.parse_math": False,  # a category may hold dollar signs
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}
Drawing = Callable[[Summary], Figure | None]


def png(draw: Drawing, summary: Summary) -> bytes | None:
    """Draw and encode; None when there is nothing to show. The same input gives the same bytes."""
    with mpl.rc_context(LOOK):
        figure = draw(summary)
        if figure is None:
            return None
        figure.set_dpi(DPI)
        out = io.BytesIO()
        # savefig would draw twice: once only to lay the figure out, which drawing does as well
        canvas: Any = FigureCanvasAgg(figure)  # print_png has no types
        canvas.print_png(out, metadata={"Software": None})
    return out.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of ``width`` x ``height`` inches that lays itself out."""
    return Figure(figsize=(width, height), layout="constrained")


def colour(index: int) -> str:
    """The ``index``-th colour, in a circle."""
    return COLOURS[index % len(COLOURS)]


def named(category: str) -> str:
    """A category as a label: in one line, and not hidden, as one that begins with ``_`` would be.

    >>> named("_a\\nb")
    ' _a b'
    """
    line = " ".join(category.split())
    return f" {line}" if line.startswith("_") else line


def marker(index: int) -> str:
    """The ``index``-th marker, in a circle longer than that of the colours."""
    return MARKERS[index % len(MARKERS)]


def chains(arms: Sequence[ArmResult]) -> list[ArmResult]:
    """The chain points in order of depth."""
    return sorted((a for a in arms if a.spec.is_chain), key=lambda arm: arm.spec.num_steps)


def smallest_batches(summary: Summary) -> list[Cell]:
    """For each workload and temperature, the cell of its smallest batch size."""
    first: dict[tuple[str, float], Cell] = {}
    for best in summary.bests:
        first.setdefault((best.cell.workload, best.cell.temperature), best.cell)
    return list(first.values())


def line_at(axes: Axes, height: float, label: str) -> None:
    """A dashed reference line with its name at the right end, just below it."""
    axes.axhline(height, color=GREY, linewidth=1, linestyle="--", zorder=1)
    axes.annotate(
        label,
        xy=(1.0, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, -2),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
        color=GREY,
    )
