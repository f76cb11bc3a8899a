"""Read a drawing back from its axes; how it looks is checked by eye."""

import dataclasses

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specbench.estimate import Caveat, Severity
from specbench.metrics.figures import ArmResult
from specbench.metrics.summary import Summary

BAD = Caveat(code="incomparable_baseline", severity=Severity.INVALID, text="")


def drawn(figure: Figure | None) -> list[Axes]:
    assert figure is not None
    return [axes for axes in figure.axes if axes.get_visible()]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = (line for line in axes.lines if line.get_label() == label)
    x, y = np.asarray(found.get_xydata(), dtype=np.float64).T
    return list(x), list(y)


def with_caveat(summary: Summary, point_id: str) -> Summary:
    def marked(arm: ArmResult) -> ArmResult:
        bad = arm.key.point_id == point_id
        return dataclasses.replace(arm, caveats=(BAD,)) if bad else arm

    return dataclasses.replace(summary, arms=tuple(marked(arm) for arm in summary.arms))
