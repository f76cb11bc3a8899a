import csv
import dataclasses
import io

import pytest

from specbench.config import SpecConfig
from specbench.errors import OutputError
from specbench.grid import Grid
from specbench.metrics.summary import SummaryInput
from specbench.report.bundle import build
from tests.unit.report.sample_runs import PROVENANCE, sample_input

PNG = b"\x89PNG\r\n\x1a\n"


POINTS = (
    SpecConfig.baseline(),
    SpecConfig.chain(1),
    SpecConfig.chain(2),
    SpecConfig(num_steps=2, topk=4, num_draft_tokens=8),
)


@pytest.fixture(scope="module")
def small() -> SummaryInput:
    return sample_input(requests=12, points=POINTS, batch_sizes=(1,))


def test_everything_is_built_and_built_again_the_same(small: SummaryInput, grid: Grid) -> None:
    first = build(small, PROVENANCE, dropped=grid.dropped)
    assert list(first) == [
        "summary.csv",
        "breakdowns.csv",
        "report.md",
        "report.html",
        "heatmap.png",
        "accept_length.png",
        "survival.png",
        "step_time.png",
    ]
    assert all(str(name).endswith(".png") == isinstance(d, bytes) for name, d in first.items())
    assert all(d.startswith(PNG) for d in first.values() if isinstance(d, bytes))
    assert build(small, PROVENANCE, dropped=grid.dropped) == first


def test_report_names_only_pictures_that_exist(small: SummaryInput) -> None:
    baseline = tuple(run for run in small.runs if run.point_id == "base")
    made = build(dataclasses.replace(small, runs=baseline), PROVENANCE)
    assert [name for name in made if name.endswith(".png")] == ["step_time.png"]
    report = made["report.md"]
    assert isinstance(report, str)
    assert "No point can be named best" in report
    assert "heatmap.png" not in report


def test_interrupted_run_is_reported(small: SummaryInput) -> None:
    part = [run for run in small.runs if run.block == 0 and run.point_id in ("base", "k1")]
    made = build(dataclasses.replace(small, runs=tuple(part)), PROVENANCE)
    table = made["summary.csv"]
    assert isinstance(table, str)
    assert {row["point_id"] for row in csv.DictReader(io.StringIO(table))} == {"base", "k1"}
    report = made["report.md"]
    assert isinstance(report, str)
    assert "not measured: the run ended before it" in report


def test_empty_run_is_refused(small: SummaryInput) -> None:
    with pytest.raises(OutputError):
        build(dataclasses.replace(small, runs=()), PROVENANCE)
