"""From a run directory to its reports, and again from disk without a model."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from specbench.backends.base import BackendFacts
from specbench.cli import main
from specbench.conclude import (
    VERDICTS,
    add_caveats,
    conclude,
    facts_json,
    read_caveats,
    summary_input,
)
from specbench.errors import OutputError
from specbench.estimate import Caveat, Severity
from specbench.gpu_samples import GpuSample, header, lines
from specbench.metrics.arms import key_of
from specbench.prompts.prompt import Prompt
from specbench.provenance import collect
from specbench.request import Request
from specbench.store import RunDir
from specbench.sweep import describe, run_sweep
from specbench.sweep_spec import SweepSpec
from specbench.workload import Workload
from tests.fakes import FakeBackend
from tests.unit.test_sweep import Watcher

SPEC = SweepSpec(
    num_steps=(0, 3), topk=(1,), num_draft_tokens=(4,), requests=3, blocks=1, max_tokens=9
)
FACTS = BackendFacts(
    backend="fake",
    target="t",
    draft="d",
    end_ids=(2,),
    caveats=(Caveat(code="capture_by_hand", severity=Severity.NOTE, text="Ids were given."),),
)


def _gap(request: Request, output_ids: Sequence[int]) -> float:
    return 1.0


def _run(path: Path) -> RunDir:
    run_json: dict[str, Any] = describe(SPEC, SPEC.grid()) | {
        "facts": facts_json(FACTS),
        "provenance": collect(("specbench", "sweep")),
    }
    prompts = tuple(
        Prompt(prompt_id=f"p{i}", category="code", turns=(f"say {i}",)) for i in range(3)
    )
    run_dir = RunDir.create(path, run_json)
    asyncio.run(
        run_sweep(
            SPEC,
            backend=FakeBackend(),
            points=SPEC.grid().points,
            workloads=[Workload(name="w", prompts=prompts, sha256="0" * 64)],
            run_dir=run_dir,
            observer=Watcher(),
        )
    )
    return run_dir


def _table(path: Path) -> list[dict[str, str]]:
    with (path / "summary.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_report_is_written_and_can_be_rebuilt_from_disk(tmp_path: Path) -> None:
    with _run(tmp_path / "run") as run_dir:
        conclude(run_dir, gap=_gap)
        run_dir.finish()
    first = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    assert {"summary.csv", "report.md", "report.html", "heatmap.png", VERDICTS} <= set(first)

    for name in ("summary.csv", "report.md", "heatmap.png"):
        (tmp_path / "run" / name).unlink()
    with RunDir.open(tmp_path / "run") as again:
        conclude(again)

    for name in ("summary.csv", "report.md", VERDICTS):
        assert (tmp_path / "run" / name).read_bytes() == first[name], name


def test_a_run_that_lacks_blocks_says_how_many(tmp_path: Path) -> None:
    asked = dataclasses.replace(SPEC, batch_sizes=(1, 2))
    with _run(tmp_path / "run") as run_dir:
        assert conclude(run_dir).unfinished is None
        run_json = {**run_dir.run_json, "asked": asked.to_json()}
    (tmp_path / "run" / "run.json").write_text(json.dumps(run_json), encoding="utf-8")
    with RunDir.open(tmp_path / "run") as run_dir:
        assert conclude(run_dir).unfinished == (2, 4)
    report = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert "**Unfinished: 2 of 4 blocks were measured" in report


def test_the_table_holds_the_scripted_counts(tmp_path: Path) -> None:
    with _run(tmp_path / "run") as run_dir:
        conclude(run_dir, gap=_gap)

    everything = {r["point_id"]: r for r in _table(tmp_path / "run") if r["category"] == "all"}
    # 9 tokens: 1 from prefill, then steps accept 3, 0, 2, ... and emit 4, 1, 3 (8 tokens).
    assert everything["k3"]["verify_steps"] == "9"
    assert float(everything["k3"]["accept_length"]) == pytest.approx(1 + 15 / 9, rel=1e-5)
    assert everything["base"]["verify_steps"] == "24"
    assert everything["k3"]["lossless"] == "exact"
    assert "capture_by_hand" in everything["k3"]["validity"]


def test_facts_come_back_as_they_were_given(tmp_path: Path) -> None:
    with _run(tmp_path / "run") as run_dir:
        given = summary_input(run_dir)

    assert (given.backend, given.target, given.draft) == ("fake", "t", "d")
    assert given.end_ids == (2,)
    assert given.caveats == {"": FACTS.caveats}
    assert set(given.points) == {"base", "k3"}


def test_caveats_of_a_run_are_kept_once_and_shown_with_their_point(tmp_path: Path) -> None:
    lag = Caveat(code="client_saturated", severity=Severity.WARNING, text="Too slow.")
    with _run(tmp_path / "run") as run_dir:
        add_caveats(run_dir, "k3", [lag])
        add_caveats(run_dir, "k3", [lag])
        assert read_caveats(run_dir) == {"k3": (lag,)}
        conclude(run_dir, gap=_gap)

    rows = {r["point_id"]: r["validity"] for r in _table(tmp_path / "run")}
    assert "client_saturated" in rows["k3"]
    assert "client_saturated" not in rows["base"]


def test_caveats_of_the_whole_run_join_those_of_the_backend(tmp_path: Path) -> None:
    lost = Caveat(code="gpu_lost", severity=Severity.WARNING, text="Gone.")
    with _run(tmp_path / "run") as run_dir:
        add_caveats(run_dir, "", [lost])
        assert summary_input(run_dir).caveats == {"": (*FACTS.caveats, lost)}


def test_samples_of_gpus_go_to_the_blocks_that_they_were_taken_for(tmp_path: Path) -> None:
    samples = [GpuSample(at_ns=at, gpu="0", power_w=1.5) for at in (1, 2)]
    with _run(tmp_path / "run") as run_dir:
        assert summary_input(run_dir).gpus == {}
        run_dir.append("gpu.csv", header() + lines(1, samples))
        given = summary_input(run_dir)
        second = given.runs[1]
        assert given.gpus == {(key_of(second), second.block): tuple(samples)}

        run_dir.append("gpu.csv", "1,damaged\n")
        with pytest.raises(OutputError, match=r"gpu\.csv line 4"):
            summary_input(run_dir)


def test_damaged_verdicts_are_named(tmp_path: Path) -> None:
    with _run(tmp_path / "run") as run_dir:
        conclude(run_dir, gap=_gap)
    (tmp_path / "run" / VERDICTS).write_text("[{}]", encoding="utf-8")

    with RunDir.open(tmp_path / "run") as run_dir, pytest.raises(OutputError, match=VERDICTS):
        conclude(run_dir)


READ = {"schema", "asked", "points", "dropped", "provenance", "facts", "resumed"}
READ_OF_ASKED = {"load", "slo", "reader_rate"}


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in run.json that a report reads."""
    if path:
        yield path
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value[:1])
    for key, one in inner:
        within = (*path, key)
        if path == () and key not in READ:
            continue
        if path == ("asked",) and key not in READ_OF_ASKED:
            continue
        if path == ("asked", "load") and key != "request_rate":
            continue
        yield from _paths(one, within)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    with _run(path) as run_dir:
        run_dir.finish()
    content = json.loads((path / "run.json").read_text())
    gone = {"num_steps": 1, "topk": 4, "num_draft_tokens": 9, "reason": "too many"}
    content |= {"dropped": [gone], "resumed": []}
    (path / "run.json").write_text(json.dumps(content))
    return path


def test_each_field_of_run_json_is_checked_for_its_type(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = finished / "run.json"
    whole = file.read_text()
    places = list(_paths(json.loads(whole)))
    assert {("dropped",), ("dropped", 0, "reason"), ("facts", "end_ids", 0)} <= set(places)
    missed = []
    try:
        for place in places:
            content = json.loads(whole)
            holder = content
            for key in place[:-1]:
                holder = holder[key]
            old = holder[place[-1]]
            holder[place[-1]] = 5 if isinstance(old, str | list | dict) else {"x": []}
            file.write_text(json.dumps(content))
            code = main(["report", str(finished)])
            told = " ".join(capsys.readouterr().err.split())
            named = [key for key in place if isinstance(key, str)][-1]
            if code != 2 or "run.json" not in told or named not in told:
                missed.append((place, code, told))
    finally:
        file.write_text(whole)
    assert missed == []
    assert main(["report", str(finished)]) == 0
