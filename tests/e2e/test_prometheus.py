"""A sweep watched by a real Prometheus: what it has seen is what the run directory holds."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from specbench.store import RunDir
from tests import tiny
from tests.programs import need
from tests.prometheus_server import RULES, PrometheusServer, free_port, prometheus

ROOT = Path(__file__).parents[2]
GRID = ("--num-steps", "0,1,3", "--topk", "1,2", "--num-draft-tokens", "4", "--batch-size", "2")
SIZE = ("--requests", "6", "--blocks", "2", "--max-tokens", "8", "--temperature", "0,1")
AGES = "[1h]"  # series of a process that has ended are stale, not gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A finished sweep, and the Prometheus that has watched it."""

    out: Path
    server: PrometheusServer
    said: str

    def last(self, series: str, *by: str) -> dict[tuple[str, ...], float]:
        """The last value of a counter, summed by labels."""
        found = self.server.query(f"sum by ({','.join(by)}) (last_over_time({series}{AGES}))")
        return {tuple(sample.labels[name] for name in by): sample.value for sample in found}

    def points(self) -> dict[tuple[str, ...], str]:
        """The label of each (point_id, workload, batch size, temperature)."""
        return {
            (
                _point_id(one.labels),
                one.labels["workload"],
                one.labels["batch_size"],
                one.labels["temperature"],
            ): one.labels["point"]
            for one in self.server.query(f"last_over_time(specbench_point_info{AGES})")
        }


def _point_id(labels: dict[str, str]) -> str:
    if labels["arm"] == "baseline":
        return "base"
    tree = f"b{labels['topk']}n{labels['num_draft_tokens']}" if labels["topk"] != "1" else ""
    return f"k{labels['num_steps']}{tree}"


def _cell(row: dict[str, str]) -> tuple[str, ...]:
    """What ``points`` knows a row of the summary by."""
    return row["point_id"], row["workload"], row["batch_size"], f"{float(row['temperature']):g}"


def _start(pair: tiny.TinyPair, out: Path, *more: str) -> subprocess.Popen[str]:
    models = ("--target", str(pair.target), "--draft", str(pair.draft), "--dtype", "float64")
    return subprocess.Popen(
        [sys.executable, "-m", "specbench.cli", "sweep", *models, "--out", str(out), *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )


def _end(process: subprocess.Popen[str]) -> str:
    """What it has written, once it has ended; ten minutes are for a machine that is busy."""
    try:
        return process.communicate(timeout=600)[0]
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def pair() -> tiny.TinyPair:
    return tiny.shared_pair()


@pytest.fixture(scope="module")
def watched(pair: tiny.TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    out, port = tmp_path_factory.mktemp("runs") / "watched", free_port()
    with prometheus(tmp_path_factory.mktemp("prometheus"), [f"127.0.0.1:{port}"]) as server:
        server.until("up == 0")  # it knows the target, which is not there yet
        process = _start(pair, out, *GRID, *SIZE, "--metrics-port", str(port))
        said = _end(process)
        assert process.returncode == 0, said
        yield Watched(out=out, server=server, said=said)


def test_totals_by_promql_are_those_of_the_summary(watched: Watched) -> None:
    with (watched.out / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["category"] == "all"]
    points = watched.points()
    steps = watched.last("specbench_verify_steps_total", "point")
    tokens = watched.last("specbench_output_tokens_total", "point")
    ended = watched.last("specbench_requests_total", "point")

    assert len(rows) == len(points) == len(set(points.values())) == 4 * 2
    for row in rows:
        point = (points[_cell(row)],)
        assert steps[point] == int(row["verify_steps"])
        assert tokens[point] == int(row["output_tokens"])
        assert ended[point] == int(row["requests"])


def test_every_step_of_the_run_directory_was_seen(watched: Watched) -> None:
    accepted, drafted, forwards, emitted = (Counter[tuple[str, ...]]() for _ in range(4))
    wall_ns, points = Counter[tuple[str, ...]](), watched.points()
    with RunDir.open(watched.out) as run_dir:
        for arm in run_dir.iter_runs():
            cell = (arm.point_id, arm.workload, str(arm.batch_size), f"{arm.temperature:g}")
            point = points[cell]
            steps = [(i, s) for i, trace in enumerate(arm.requests) for s in trace.steps]
            for _, step in steps:
                emitted[point,] += step.emitted
                drafted.update((point, str(i + 1)) for i in range(step.depth))
                accepted.update((point, str(i + 1)) for i in range(step.accepted))
            times = {s.batch_step: s.wall_ns for _, s in steps}
            forwards[point,] += len(times)
            wall_ns[point,] += sum(times.values())

    assert sum(accepted.values()) > 0
    seen = watched.last("specbench_accepted_tokens_total", "point", "position")
    assert {key: n for key, n in seen.items() if n} == accepted
    assert watched.last("specbench_drafted_positions_total", "point", "position") == drafted
    assert watched.last("specbench_emitted_tokens_total", "point") == emitted
    assert watched.last("specbench_step_seconds_count", "point") == forwards
    seconds = watched.last("specbench_step_seconds_sum", "point")
    assert seconds == {key: ns / 1e9 for key, ns in wall_ns.items()}
    by_steps = watched.last("specbench_accepted_per_step_sum", "point")
    assert sum(by_steps.values()) == sum(accepted.values())


def test_the_sweep_says_where_and_ends_with_everything_saved(watched: Watched) -> None:
    assert "metrics on http://127.0.0.1:" in watched.said
    assert "nobody has scraped" not in watched.said
    saved = watched.last("specbench_sweep_blocks_saved")
    assert saved == watched.last("specbench_sweep_blocks") == {(): 4 * 2 * 2}
    info = watched.server.query(f"last_over_time(specbench_run_info{AGES})")
    assert [(one.labels["run_id"], one.labels["backend"]) for one in info] == [
        ("watched", "inprocess")
    ]


def test_the_rules_gave_the_figures_of_the_summary(watched: Watched) -> None:
    found = watched.server.query(
        f'last_over_time(specbench:accept_length:mean{{arm="spec"}}{AGES})'
    )
    means = {one.labels["point"]: one.value for one in found}
    with (watched.out / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["category"] == "all"]
    # arms of the first cell: their last block was long over when the rules were evaluated last
    (row,) = [r for r in rows if _cell(r) == ("k3", "default", "2", "0")]
    point = watched.points()[_cell(row)]
    assert means[point] == pytest.approx(float(row["accept_length"]), rel=1e-5)
    speedups = watched.server.query(f"last_over_time(specbench:speedup:mean{AGES})")
    assert len(speedups) == 3 * 2
    assert all(one.value > 0 for one in speedups)


def test_rules_and_alerts_pass_their_own_tests() -> None:
    tool = need("promtool")
    for command in (("check", "config", "prometheus.yml"), ("test", "rules", "rules_test.yml")):
        done = subprocess.run(
            [tool, *command], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_taken_port_and_a_silent_receiver_do_not_stop_a_sweep(
    pair: tiny.TinyPair, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        nowhere = f"http://127.0.0.1:{free_port()}"
        small = ("--num-steps", "0,1", "--requests", "1", "--blocks", "1", "--max-tokens", "2")
        process = _start(
            pair, tmp_path / "run", *small, "--metrics-port", port, "--metrics-push", nowhere
        )
        said = _end(process)

    assert process.returncode == 0, said
    assert f"the run goes on: Metrics cannot be served on 127.0.0.1:{port}" in said
    assert f"metrics are not pushed: Metrics could not be pushed to {nowhere}" in said
    assert (tmp_path / "run" / "summary.csv").is_file()
