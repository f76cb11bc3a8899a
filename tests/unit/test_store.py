from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench import store
from specbench.errors import OutputError, RunError
from specbench.store import RunDir, check_folder
from specbench.trace import ArmRun, RequestTrace
from tests.unit.data.killed_writer import RUN, arm
from tests.unit.data.traces import arms

SCRIPT = Path(__file__).parent / "data" / "killed_writer.py"


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(runs=st.lists(arms, max_size=3, unique_by=lambda arm: arm.block))
def test_everything_comes_back_before_and_after_compaction(
    tmp_path_factory: pytest.TempPathFactory, runs: list[ArmRun]
) -> None:
    path = tmp_path_factory.mktemp("run") / "a"
    with RunDir.create(path, RUN) as run:
        for each in runs[:2]:
            run.save_block(each)
        assert run.load_runs() == RunDir.open(path).load_runs() == runs[:2]
        run.finish()
    assert RunDir.open(path).load_runs() == runs[:2]
    with RunDir.resume(path, RUN) as run:
        for each in runs[2:]:
            run.save_block(each)
        assert RunDir.open(path).load_runs() == runs
        run.finish()
    assert RunDir.open(path).load_runs() == runs
    assert not (path / "steps.jsonl").exists()


def test_a_writer_killed_at_any_time_leaves_whole_blocks(tmp_path: Path) -> None:
    path, pick, saved = tmp_path / "run", random.Random(5), 0
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for round_ in range(4):
        child = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(path)], stdout=subprocess.PIPE, env=env, text=True
        )
        assert child.stdout is not None
        for _ in range(pick.randrange(1, 12)):
            saved = max(saved, int(child.stdout.readline()) + 1)
        for _ in range(pick.randrange(20_000)):
            pass  # so that the kill falls anywhere in a save
        child.send_signal(signal.SIGKILL)
        saved = max([saved, *(int(line) + 1 for line in child.stdout if line.endswith("\n"))])
        assert child.wait(30) == -signal.SIGKILL
        child.stdout.close()
        if round_ == 1:
            RunDir.resume(path, RUN).finish()
        found = RunDir.open(path).load_runs()
        assert len(found) in (saved, saved + 1)
        assert found == [arm(number) for number in range(len(found))]


@pytest.mark.parametrize("killed_in", ["replace", "unlink"])
def test_a_kill_in_the_middle_of_compaction_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    path = tmp_path / "run"
    run = RunDir.create(path, RUN)
    runs = [arm(0), arm(1), arm(2)]
    for each in runs:
        run.save_block(each)
    real = getattr(Path, killed_in)

    def killed(self: Path, *args: Any, **named: Any) -> Any:
        if killed_in == "replace" or self.name == "steps.jsonl":
            raise KeyboardInterrupt
        return real(self, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, killed_in, killed)
        with pytest.raises(KeyboardInterrupt):
            run.finish()
    run.close()
    assert (path / "steps.parquet").exists() == (killed_in == "unlink")
    reader = RunDir.open(path)
    assert reader.load_runs() == runs
    assert not reader.notes
    with RunDir.resume(path, RUN) as again:
        again.save_block(arm(3))
        assert again.load_runs() == [*runs, arm(3)]
        again.finish()
        again.finish()
    assert RunDir.open(path).load_runs() == [*runs, arm(3)]
    assert {p.name for p in path.iterdir()} == {
        "run.json",
        "blocks.jsonl",
        "inputs.jsonl",
        "requests.jsonl",
        "steps.parquet",
    }


def test_a_killed_run_leaves_unfinished_files_that_the_next_writer_clears(tmp_path: Path) -> None:
    RunDir.create(tmp_path, RUN).close()
    (tmp_path / ".specbench-12ab.csv").write_text("half", "utf-8")
    RunDir.resume(tmp_path, RUN).close()
    assert not (tmp_path / ".specbench-12ab.csv").exists()


def test_blocks_say_what_is_done_and_none_is_saved_twice(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "a" / "b", RUN) as run:
        assert run.blocks() == frozenset()
        run.save_block(arm(0))
        run.save_block(arm(5))
        assert run.blocks() == {("k3", "w", 1, 0.0, 0), ("k3", "w", 1, 0.0, 5)}
        with pytest.raises(OutputError, match="already saved"):
            run.save_block(arm(5))
        run.finish()
        with pytest.raises(OutputError, match="not open for writing"):
            run.save_block(arm(6))
    assert RunDir.open(tmp_path / "a" / "b").blocks() == run.blocks()


def test_equal_requests_are_stored_once(tmp_path: Path) -> None:
    with RunDir.create(tmp_path, RUN) as run:
        run.save_block(arm(1))
        run.save_block(arm(8))
    with RunDir.resume(tmp_path, RUN) as run:
        run.save_block(arm(15))
    rows = [json.loads(line) for line in (tmp_path / "inputs.jsonl").open("rb")]
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids)
    assert len(RunDir.open(tmp_path).load_runs()) == 3


def test_the_columnar_file_stands_alone(tmp_path: Path) -> None:
    with RunDir.create(tmp_path, RUN) as run:
        run.save_block(arm(1))
        run.finish()
    frame = pq.read_table(tmp_path / "steps.parquet").to_pydict()
    assert set(frame["point_id"]) == {"k3"}
    assert set(frame["request_id"]) == {"r1-0", "r1-1"}
    assert len(frame["accepted"]) == sum(len(trace.steps) for trace in arm(1).requests)


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x", "utf-8")
    with pytest.raises(OutputError, match="not empty") as caught:
        RunDir.create(tmp_path, RUN)
    assert "--resume" in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(OutputError, match="folder of a run"):
        RunDir.resume(tmp_path, RUN)
    RunDir.create(tmp_path / "run", RUN).close()
    with pytest.raises(OutputError, match="not empty"):
        RunDir.create(tmp_path / "run", RUN)


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    for path in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/run")):
        with pytest.raises(OutputError, match="cannot be made") as caught:
            RunDir.create(path, RUN)
        assert caught.value.exit_code == 2
        with pytest.raises(OutputError, match="cannot be made"):
            RunDir.resume(path, RUN)
    with pytest.raises(OutputError, match="lack provenance"):
        RunDir.create(tmp_path / "new", {"asked": {}, "points": [], "dropped": []})
    assert not (tmp_path / "new").exists()


def test_a_folder_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", forbidden)  # root may write everywhere, so the mode is no test
    with pytest.raises(OutputError, match="cannot be opened for writing: Permission denied"):
        RunDir.create(tmp_path, RUN)


def test_a_folder_is_tried_before_anything_slow(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b", resume=False)
    assert list((tmp_path / "a" / "b").iterdir()) == []
    RunDir.create(tmp_path / "a" / "b", RUN).close()
    check_folder(tmp_path / "a" / "b", resume=True)
    with pytest.raises(OutputError, match="not empty"):
        check_folder(tmp_path / "a" / "b", resume=False)
    with pytest.raises(OutputError, match="cannot be made"):
        check_folder(Path("/proc/run"), resume=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.txt").write_text("x", "utf-8")
    with pytest.raises(OutputError, match="folder of a run"):
        check_folder(tmp_path / "mine", resume=True)


def test_resuming_nothing_begins_a_run_and_says_so(tmp_path: Path) -> None:
    run = RunDir.resume(tmp_path / "new", RUN)
    run.close()
    assert "nothing to resume" in run.notes[0]


def test_resuming_keeps_who_went_on_and_says_what_is_different(tmp_path: Path) -> None:
    first: dict[str, Any] = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "command": ["specbench", "sweep"],
        "software": {"torch": "2.13.0"},
        "machine": {"cores": "2", "load_average": "0.1"},
        "device": {},
        "inputs": {"target_sha256": "aa"},
    }
    second = {**first, "software": {"torch": "2.14.0"}, "started_at": "2026-01-02T00:00:00+00:00"}
    second["machine"] = {"cores": "2", "load_average": "2.5"}
    RunDir.create(tmp_path, {**RUN, "provenance": first}).close()
    with RunDir.resume(tmp_path, {**RUN, "provenance": second}) as run:
        assert run.notes == ('resumed with other software.torch: "2.13.0" -> "2.14.0"',)
        assert run.run_json["resumed"] == [second]
        assert run.provenance.command == ("specbench", "sweep")
        assert run.provenance.software == {"torch": "2.13.0"}
    assert RunDir.open(tmp_path).run_json["resumed"] == [second]
    with pytest.raises(OutputError, match=r"asked\.n: 1 -> 2"):
        RunDir.resume(tmp_path, {**RUN, "asked": {"n": 2}, "provenance": second})
    other = {**second, "inputs": {"target_sha256": "bb"}}
    with pytest.raises(OutputError, match=r"inputs\.target_sha256"):
        RunDir.resume(tmp_path, {**RUN, "provenance": other})


def test_two_writers_are_refused_and_readers_are_not(tmp_path: Path) -> None:
    with RunDir.create(tmp_path, RUN) as run:
        run.save_block(arm(0))
        with pytest.raises(OutputError, match="another process is writing"):
            RunDir.resume(tmp_path, RUN)
        reader = RunDir.open(tmp_path)
        assert reader.load_runs() == [arm(0)]
        reader.finish()
        assert (tmp_path / "steps.jsonl").exists()
        with pytest.raises(OutputError, match="not open for writing"):
            reader.save_block(arm(1))
    RunDir.resume(tmp_path, RUN).close()


def test_reports_are_replaced_at_once_and_cannot_hit_the_runs_own_files(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "run", RUN) as run:
        path = run.write("summary.csv", "a,b\n")
        assert path.read_text("utf-8") == "a,b\n"
        with run.writing("heat.png") as temporary:
            temporary.write_bytes(b"png")
        assert (tmp_path / "run" / "heat.png").read_bytes() == b"png"
        run.append("summary.csv", "c,d\n")
        assert path.read_text("utf-8") == "a,b\nc,d\n"
        for name in ("run.json", "steps.parquet", "../x", "a/b", "", ".x", "blocks.jsonl"):
            with pytest.raises(OutputError, match="cannot be the name"):
                run.write(name, "x")
            with pytest.raises(OutputError, match="cannot be the name"):
                run.append(name, "x\n")


def test_what_is_not_of_the_schema_is_an_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(traces: tuple[RequestTrace, ...], known: set[str]) -> dict[str, bytes]:
        del traces, known
        return {"inputs": b"", "requests": b'{"request":"gone","id":"a"}\n', "steps": b"{}\n"}

    with RunDir.create(tmp_path, RUN) as run:
        monkeypatch.setattr(store, "block_parts", other)
        run.save_block(arm(0))
    with pytest.raises(OutputError, match=r"block 0 .* KeyError"):
        RunDir.open(tmp_path).load_runs()


def test_a_disk_that_refuses_keeps_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with RunDir.create(tmp_path, RUN) as run:
        run.save_block(arm(1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(RunError, match="No space left"):
                run.save_block(arm(2))
        assert run.load_runs() == [arm(1)]
        run.save_block(arm(2))
    assert RunDir.open(tmp_path).load_runs() == [arm(1), arm(2)]
