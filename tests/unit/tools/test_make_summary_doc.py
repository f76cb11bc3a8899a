"""docs/summary.md is current, complete, and its example runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from specbench.estimate import Evidence
from specbench.metrics.breakdowns import breakdowns
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.lossless import Verdict
from specbench.metrics.rows import SummaryRow, rows
from specbench.metrics.summary import summarise
from specbench.metrics.sums import complete_sums
from specbench.report.breakdowns import COLUMNS as BREAKDOWN_COLUMNS
from specbench.report.tables import summary_csv_text
from specbench.trace import RequestTrace, Usage
from tests.unit.report.sample_runs import POINTS, sample_input
from tools.make_summary_doc import DOC, WORDS, described, document


@pytest.fixture(scope="module")
def sample() -> tuple[SummaryRow, ...]:
    """The rows of a small sweep: plain decoding and two chains."""
    return rows(summarise(sample_input(requests=15, points=POINTS[:3], batch_sizes=(1,))))


def test_the_page_of_docs_is_current() -> None:
    assert DOC.read_text(encoding="utf-8") == document(), "run: python -m tools.make_summary_doc"


def test_every_column_of_summary_csv_has_a_line(sample: tuple[SummaryRow, ...]) -> None:
    whole = dataclasses.replace(sample[-1], energy_j_per_accepted=0.5, request_rate=2.5)
    header = summary_csv_text((whole,)).splitlines()[0]
    assert header.split(",") == described("summary")
    assert all(f"`{name}`" in document() for name in described("summary"))


def test_a_column_that_is_never_empty_is_filled_in_every_row(
    sample: tuple[SummaryRow, ...],
) -> None:
    always = [n for e in WORDS["summary"] for n in e["columns"] if "empty" not in e]
    for row in sample:
        for name in always:
            assert name == "request_rate" or getattr(row, name) is not None, name
    plain = {
        name: getattr(sample[0], "survival" if name.startswith("survival_") else name)
        for entry in WORDS["summary"]
        for name in entry["columns"]
        if entry.get("empty", "").startswith(("`base`", "plain decoding"))
    }
    assert set(plain) >= {"speedup", "lossless", "accept_rate_depth", "survival_1"}
    assert not any(plain.values())


def test_every_column_of_breakdowns_csv_has_a_line() -> None:
    assert tuple(described("breakdowns")) == BREAKDOWN_COLUMNS


def seen_as(trace: RequestTrace, evidence: Evidence) -> RequestTrace:
    usage = Usage(completion_tokens=11, histogram=(1, 1, 1, 1), drafted=12)
    bare = evidence is not Evidence.STEPS
    return dataclasses.replace(
        trace, evidence=evidence, steps=() if bare else trace.steps, usage=usage
    )


@pytest.mark.parametrize("evidence", [Evidence.STEPS, Evidence.HISTOGRAM, Evidence.TOTALS])
def test_the_kinds_of_breakdowns_are_those_that_the_evidence_gives(evidence: Evidence) -> None:
    trace = trace_of([3, 2, 0, 1], depth=3)
    request = dataclasses.replace(trace.request, category="code")
    trace = seen_as(dataclasses.replace(trace, request=request), evidence)
    made = dict.fromkeys(row.by for row in breakdowns(complete_sums([run_of(trace)])))
    told = [one["by"] for one in WORDS["kinds"] if evidence >= Evidence[one["needs"]]]
    assert list(made) == told


def test_the_verdicts_are_those_of_the_program() -> None:
    assert list(WORDS["verdicts"]) == [verdict.value for verdict in Verdict]


def test_the_example_of_the_page_runs(
    sample: tuple[SummaryRow, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "summary.csv").write_text(summary_csv_text(sample), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", document(), re.DOTALL)
    exec(code, {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["k2", "k1"]
