"""``breakdowns.csv``, and the short table of it that the report shows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from specbench.estimate import Estimate, Evidence
from specbench.metrics.breakdowns import Breakdown
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.document import Block, Folded, Heading, Table

COLUMNS = (
    "workload",
    "temperature",
    "batch_size",
    "point_id",
    "by",
    "key",
    "steps",
    "hits",
    "value",
    "low",
    "high",
    "unit",
)
SHOWN = {"context": "context length", "cycle": "step of the request", "turn": "user turn"}


def breakdowns_csv_text(summary: Summary) -> str:
    """Every breakdown of every speculative arm; empty means not known (metrics/breakdowns.py)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for arm in summary.arms:
        cell = arm.key.cell
        where = (cell.workload, f"{cell.temperature:g}", cell.batch_size, arm.key.point_id)
        for row in arm.breakdowns:
            bounds = (row.value, row.low, row.high)
            texts = ("" if value is None else f"{value:.6g}" for value in bounds)
            writer.writerow([*where, row.by, row.key, row.steps, row.hits, *texts, row.unit])
    return out.getvalue()


def breakdowns(summary: Summary) -> Iterable[Block]:
    """The best point's accept length by context length, step of the request and turn."""
    arm = summary.headline.arm
    if arm is None:
        return
    found = [[row for row in arm.breakdowns if row.by == by] for by in SHOWN]
    rows = [row for of in found if len(of) > 1 for row in of]  # one alone repeats the total
    if not rows:
        return
    yield Heading(text="Where acceptance changes")
    yield Folded(
        title=f"{wording.triple(arm.spec)} by context, time and turn; breakdowns.csv has the rest",
        inside=Table(
            columns=("by", "range", "steps", "accept length"),
            rows=tuple(
                (SHOWN[row.by], row.key, str(row.steps), wording.estimate(_estimate(row)))
                for row in rows
            ),
            words=("by", "range"),
        ),
    )


def _estimate(row: Breakdown) -> Estimate:
    return Estimate(
        value=row.value,
        low=row.low,
        high=row.high,
        n=row.steps,
        unit=row.unit,
        evidence=Evidence.STEPS,
    )
