"""``summary.csv``: the columns of the design, as text."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence

from specbench.metrics.rows import SummaryRow

_RIGHT = ("energy_j_per_accepted", "request_rate")  # columns only where a row has a value
COLUMNS = tuple(
    field.name
    for field in dataclasses.fields(SummaryRow)
    if field.name not in ("survival", *_RIGHT)
)


def summary_csv_text(rows: Sequence[SummaryRow]) -> str:
    """The rows as CSV. Empty means not measured.

    survival_1 … survival_K follow the fixed columns, K the deepest of all rows;
    ``energy_j_per_accepted`` comes after them where GPUs were sampled, ``request_rate`` last, in
    open-loop runs only.
    """
    deepest = max((len(row.survival) for row in rows), default=0)
    right = [name for name in _RIGHT if any(getattr(row, name) is not None for row in rows)]
    header = [*COLUMNS, *(f"survival_{level}" for level in range(1, deepest + 1)), *right]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        values: list[object] = [getattr(row, column) for column in COLUMNS]
        values += [*row.survival, *[None] * (deepest - len(row.survival))]
        values += [getattr(row, name) for name in right]
        writer.writerow([_cell(value) for value in values])
    return out.getvalue()


def _cell(value: object) -> str:
    """Six significant digits; nothing for what was not measured."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
