import csv
import io

import pytest

from specbench.metrics.summary import Summary
from specbench.report.breakdowns import COLUMNS, breakdowns, breakdowns_csv_text
from specbench.report.document import Folded


def test_the_file_holds_every_cut_of_every_arm(summary: Summary) -> None:
    rows = list(csv.DictReader(io.StringIO(breakdowns_csv_text(summary))))
    assert tuple(rows[0]) == COLUMNS
    drafting = [arm for arm in summary.arms if not arm.spec.is_baseline]
    for arm in drafting:
        mine = [
            row
            for row in rows
            if (row["point_id"], row["batch_size"])
            == (arm.key.point_id, str(arm.key.cell.batch_size))
        ]
        assert {row["by"] for row in mine} == {
            "unconditional",
            "conditional",
            "histogram",
            "request",
            "category",
            "context",
            "output",
            "cycle",
            "turn",
        }
        (turn,) = (row for row in mine if row["by"] == "turn")
        length = arm.total.accept_length
        assert length is not None
        assert float(turn["value"]) == pytest.approx(length.value, rel=1e-5)
        assert float(turn["low"]) == pytest.approx(length.low or 0, rel=1e-5)
    assert len({row["point_id"] for row in rows}) == 9


def test_the_report_shows_those_of_the_best_point(summary: Summary) -> None:
    _, folded = breakdowns(summary)
    assert isinstance(folded, Folded)
    shown = [row[0] for row in folded.inside.rows]
    assert shown.count("step of the request") > 2
    assert set(shown) == {"step of the request"}  # one range of context, one turn: the total again
