"""The PNG plots of a run, each drawn from the summary; a plot without data is left out."""

from __future__ import annotations

from specbench.metrics.summary import Summary
from specbench.report.plots.heatmap import heatmap
from specbench.report.plots.lengths import lengths
from specbench.report.plots.positions import positions
from specbench.report.plots.step_time import step_time
from specbench.report.plots.style import png

DRAWINGS = {
    "heatmap.png": heatmap,
    "accept_length.png": lengths,
    "survival.png": positions,
    "step_time.png": step_time,
}


def plots(summary: Summary) -> dict[str, bytes]:
    """PNG bytes by file name."""
    drawn = {name: png(draw, summary) for name, draw in DRAWINGS.items()}
    return {name: data for name, data in drawn.items() if data is not None}
