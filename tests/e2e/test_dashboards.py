"""Every query of every board against a real Prometheus that scrapes a stand-in for two runs."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specbench import cli
from specbench.dashboards.build import boards
from tests import tiny
from tests.prometheus_server import PrometheusServer, free_port, prometheus
from tests.published import PLAIN_MS, SPEC_MS, WORKLOAD, accept_length, published, speedup
from tests.unit.dashboards.stand_in import grafana_stand_in

VALUES = {
    "$__rate_interval": "10s",
    "$__range": "10m",
    "$resolution": "1s",
    "$window": "30s",
    "$instance": ".*",
    "$point": ".*",
    "$run_a": "run-a",
    "$run_b": "run-b",
    "$run": "run-a",
    "$shift": "1ms",
    "$workload": WORKLOAD,
    "$batch_size": "4",
    "$temperature": "0",
}
QUERIES = {
    f"{board['title']}: {panel['title']}: {target['refId']}": target
    for board in boards().values()
    for panel in board["panels"]
    for target in panel.get("targets", [])
}
Series = Mapping[tuple[tuple[str, str], ...], list[float]]


@dataclass(frozen=True)
class Boards:
    """A Prometheus that has seen both runs for a while."""

    server: PrometheusServer

    def ask(self, name: str, **other: str) -> Series:
        """The series of one query, as Grafana would ask for it; ``other`` variables win."""
        target = QUERIES[name]
        expr = _filled(target["expr"], **other)
        end = _now(self.server)
        if target["instant"]:
            found = self.server.get("query", query=expr, time=str(end))["result"]
            return {_labels(one): [float(one["value"][1])] for one in found}
        window = {"start": str(end - 4), "end": str(end), "step": "1"}
        found = self.server.get("query_range", query=expr, **window)["result"]
        return {_labels(one): [float(v) for _, v in one["values"]] for one in found}

    def last(self, name: str, **other: str) -> dict[str, float]:
        """The last value of each series, by its label ``point``."""
        return {dict(key).get("point", ""): v[-1] for key, v in self.ask(name, **other).items()}


def _filled(text: str, **other: str) -> str:
    """``text`` with a value for each of Grafana's variables."""
    values = VALUES | {f"${key}": value for key, value in other.items()}
    for word in sorted(values, key=len, reverse=True):
        text = text.replace(word, values[word])
    assert "$" not in text, text
    return text


def _labels(one: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(one["metric"].items()))


def _now(server: PrometheusServer) -> float:
    found: float = server.get("query", query="time()")["result"][1]
    return float(found)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boards]:
    folder = tmp_path_factory.mktemp("prometheus")
    with published("run-a", "run-b") as pages, prometheus(folder, pages.addresses) as server:
        server.until("count(up == 1)", lambda found: bool(found) and found[0].value == 2)
        server.until(
            "min(count_over_time(specbench_run_info[1m]))",
            lambda found: bool(found) and found[0].value >= 6,
        )
        yield Boards(server)


@pytest.mark.parametrize("name", QUERIES)
def test_no_panel_is_empty(live: Boards, name: str) -> None:
    end_ns = time.perf_counter_ns() + 20_000_000_000
    while not (found := live.ask(name)) and time.perf_counter_ns() < end_ns:
        time.sleep(0.5)  # a busy machine misses a scrape now and then
    assert found
    assert all(math.isfinite(v) for values in found.values() for v in values)


def test_variables_find_their_values(live: Boards) -> None:
    """As Grafana reads them: labels of a series, or a pattern over the lines of a result."""
    found: dict[str, set[str]] = {}
    for board in boards().values():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            text = _filled(variable["query"]["query"])
            if match := re.fullmatch(r"label_values\((.*), (\w+)\)", text):
                asked = {"match[]": match[1]}
                values = set(live.server.get(f"label/{match[2]}/values", **asked))
            else:
                lines = [_line(one.labels) for one in live.server.query(text[13:-1])]
                pattern = variable["regex"].strip("/")
                values = {value for line in lines for value in re.findall(pattern, line)}
            found.setdefault(variable["name"], set()).update(values)
    assert {"k3.bs4", "base.bs4"} < found.pop("point")
    assert len(found.pop("instance")) == 2
    runs = {"run-a", "run-b"}
    assert found == {
        "run": runs,
        "run_a": runs,
        "run_b": runs,
        "workload": {WORKLOAD},
        "batch_size": {"4"},
        "temperature": {"0"},
    }


def _line(labels: Mapping[str, str]) -> str:
    """A series of a result as Grafana writes it for the pattern of a variable."""
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "} 1 0"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("specbench / live run: Accept length: A", accept_length()),
        ("specbench / live run: Speedup over the baseline: A", speedup()),
        ("specbench / live run: Emitted accept length against break-even: B", SPEC_MS / PLAIN_MS),
        ("specbench / sweep: Best speedup so far: A", speedup()),
        ("specbench / sweep: Longest accept length so far: A", accept_length()),
        ("specbench / sweep: Points: C", accept_length()),
        ("specbench / sweep: Points: G", SPEC_MS / PLAIN_MS),
        ("specbench / sweep: Points: H", speedup()),
        ("specbench / compare: Accept length: B", accept_length()),
    ],
)
def test_the_figure_is_the_defined_one(live: Boards, name: str, wanted: float) -> None:
    found = live.last(name)
    assert found
    assert found == pytest.approx(dict.fromkeys(found, wanted), rel=1e-9)


def test_step_time_is_its_parts(live: Boards) -> None:
    parts = live.ask("specbench / live run: Batch step time by part: A")
    for arm, wanted_ms in (("baseline", PLAIN_MS), ("spec", SPEC_MS)):
        of = [values[-1] for key, values in parts.items() if dict(key)["arm"] == arm]
        assert len(of) == 8  # four parts of two instances
        assert sum(of) / 2 == pytest.approx(wanted_ms / 1000)


def test_the_matrix_has_a_row_and_a_column_for_each_point(live: Boards) -> None:
    found = live.ask("specbench / sweep: Speedup by point: A")
    cells = {(dict(key)["tree"], dict(key)["num_draft_tokens"]) for key in found}
    assert cells == {("3 × 1", "4"), ("3 × 2", "6")}


def test_columns_of_the_table_merge_into_one_row_per_point(live: Boards) -> None:
    columns = [live.ask(f"specbench / sweep: Points: {letter}") for letter in "ABCDEFGH"]
    rows = {key for column in columns for key in column}
    assert len(rows) == 3
    assert {dict(row)["point"] for row in rows} == {"base.bs4", "k3.bs4", "k3b2n6.bs4"}


def test_choosing_one_point_keeps_its_baseline(live: Boards) -> None:
    name = "specbench / live run: Speedup over the baseline: A"
    assert live.last(name, point="k3.bs4") == {"k3.bs4": pytest.approx(speedup())}


def test_another_run_is_not_in_the_figures(live: Boards) -> None:
    assert live.ask("specbench / sweep: Points: A", run="run-c") == {}
    (key,) = live.ask("specbench / sweep: Blocks saved over time: A")
    assert dict(key)["run_id"] == "run-a"


def test_energy_is_told_per_token(live: Boards) -> None:
    per_token = live.ask("specbench / live run: Energy per token: A")
    per_draft = live.ask("specbench / live run: Energy per token: B")
    # 24 tokens are emitted for 12 accepted drafts
    assert {k: v[-1] * 2 for k, v in per_token.items()} == pytest.approx(
        {k: v[-1] for k, v in per_draft.items()}, rel=0.2
    )


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "secret")


def _sweep(tmp_path: Path, grafana: str) -> list[str]:
    pair = tiny.write_pair(tmp_path / "pair")
    models = ["--target", str(pair.target), "--draft", str(pair.draft), "--dtype", "float64"]
    size = ["--num-steps", "2", "--topk", "1", "--requests", "2", "--blocks", "1"]
    out = ["--batch-size", "1", "--max-tokens", "4", "--out", str(tmp_path / "my-run")]
    return ["sweep", *models, *size, *out, "--grafana", grafana]


@pytest.mark.usefixtures("token")
def test_a_sweep_marks_itself_in_grafana(tmp_path: Path) -> None:
    with grafana_stand_in() as stand_in:
        assert cli.main(_sweep(tmp_path, stand_in.url)) == 0
        marks = stand_in.posted("/api/annotations")
    assert [mark["text"].split(",")[0] for mark in marks] == [
        "Run my-run started: 2 blocks",
        "base",
        "k2",
        "Run my-run ended",
    ]
    assert all("run:my-run" in mark["tags"] for mark in marks)


@pytest.mark.usefixtures("token")
def test_a_sweep_goes_on_without_grafana(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(_sweep(tmp_path, f"http://127.0.0.1:{free_port()}")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("Annotations are no longer posted") == 1
    assert (tmp_path / "my-run" / "report.md").is_file()


def test_a_sweep_without_a_token_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)
    assert cli.main(_sweep(tmp_path, "http://127.0.0.1:3000")) == 2
    assert "GRAFANA_TOKEN" in capsys.readouterr().err
    assert not (tmp_path / "my-run").exists()
