"""The main job from the command line on a tiny pair: files, bad input, kill -9, Ctrl-C."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from specbench import cli
from specbench.journal import INDEX
from specbench.store import RunDir
from tests import tiny

ROOT = Path(__file__).parents[2]
GRID = ("--num-steps", "0,1,3", "--topk", "1,2", "--num-draft-tokens", "4", "--batch-size", "1,2")
SIZE = ("--requests", "6", "--blocks", "2", "--max-tokens", "6", "--seed", "1")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyPair:
    return tiny.write_pair(tmp_path_factory.mktemp("pair"))


def _models(pair: tiny.TinyPair) -> tuple[str, ...]:
    return ("--target", str(pair.target), "--draft", str(pair.draft), "--dtype", "float64")


def _counts(out: Path) -> dict[object, object]:
    with RunDir.open(out) as run_dir:
        return {
            (arm.point_id, arm.batch_size, arm.block): sorted(
                (
                    trace.request.request_id,
                    trace.output_ids,
                    tuple((s.drafted, s.accepted, s.emitted) for s in trace.steps),
                )
                for trace in arm.requests
            )
            for arm in run_dir.iter_runs()
        }


@pytest.fixture(scope="module")
def whole(pair: tiny.TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert cli.main(["sweep", *_models(pair), *GRID, *SIZE, "--out", str(out)]) == 0
    return out


def test_a_sweep_leaves_table_report_and_pictures(whole: Path) -> None:
    names = {p.name for p in whole.iterdir()}
    assert {"run.json", "steps.parquet", "summary.csv", "report.md", "report.html"} <= names
    assert {"heatmap.png", "accept_length.png", "survival.png", "step_time.png"} <= names
    assert not [n for n in names if n.endswith(".tmp") or n.startswith(".")]
    assert (whole / "report.md").read_text(encoding="utf-8").startswith("# specbench report")
    with (whole / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    everything = [r for r in rows if r["category"] == "all"]
    assert {(r["point_id"], r["batch_size"]) for r in everything} == {
        (p, b) for p in ("base", "k1", "k3", "k3b2n4") for b in ("1", "2")
    }
    assert {r["lossless"] for r in everything if r["point_id"] != "base"} == {"exact"}
    assert all(float(r["accept_length"]) > 1 for r in everything if r["point_id"] == "k3")


def test_the_report_can_be_rebuilt(whole: Path) -> None:
    before = (whole / "report.md").read_bytes()
    (whole / "report.md").unlink()
    assert cli.main(["report", str(whole)]) == 0
    assert (whole / "report.md").read_bytes() == before


def test_a_killed_sweep_resumes_to_the_same_counts(
    pair: tiny.TinyPair, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    process = _start(pair, out)
    _wait_for_blocks(out, 2, process)
    process.kill()
    process.wait()
    with RunDir.open(out) as run_dir:
        kept = len(run_dir.blocks())
    assert kept >= 2
    assert cli.main(["sweep", "--resume", "--out", str(out)]) == 0
    assert _counts(out) == _counts(whole)


def test_an_interrupted_sweep_reports_what_it_has(pair: tiny.TinyPair, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    process = _start(pair, out, "--requests", "60")  # long enough for the signal to reach it
    _wait_for_blocks(out, 4, process)
    process.send_signal(signal.SIGINT)
    code = process.wait(timeout=60)
    if code == 0:
        pytest.skip("the sweep ended before the signal reached it")
    assert code == 3
    assert (out / "report.md").is_file()
    assert json.loads((out / "run.json").read_text(encoding="utf-8"))["asked"]["seed"] == 1


def _start(pair: tiny.TinyPair, out: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "specbench.cli", "sweep", *_models(pair), *GRID, *SIZE]
    return subprocess.Popen(
        [*command, *words, "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _wait_for_blocks(out: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Until ``count`` blocks are committed, or the process is done; at most two minutes."""
    for _ in range(12_000):
        with contextlib.suppress(OSError):
            if (out / "blocks.jsonl").read_bytes().count(b"\n") >= count:
                return
        if process.poll() is not None:
            return
        time.sleep(0.01)
    raise AssertionError("the sweep saved nothing in two minutes")


def test_a_second_writer_touches_nothing(
    pair: tiny.TinyPair, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    (out / "report.md").write_text("of the first writer")
    with (out / INDEX).open("rb+") as index:
        fcntl.flock(index, fcntl.LOCK_EX)
        assert cli.main(["sweep", "--resume", "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert "another process is writing" in said.err
    assert "are kept" not in said.out
    assert (out / "report.md").read_text() == "of the first writer"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--target", "/nowhere"), 2, "/nowhere"),
        (("--server", "http://127.0.0.1:9"), 3, "127.0.0.1:9"),
        (("--server", "127.0.0.1"), 2, "127.0.0.1"),
        (("--workload", "nothing"), 2, "nothing"),
        (("--requests", "100000"), 2, "100000 requests"),
        (("--draft", "x"), 2, "--draft"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_nothing(
    words: tuple[str, ...],
    code: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    assert cli.main(["sweep", *words, "--out", str(out)]) == code
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert not out.exists()


def _truncate(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _unknown_key(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "rope_thetta": 5}), encoding="utf-8")


def _wrong_shape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (_truncate, "model.safetensors"),
        (_pickle, "safetensors only"),
        (_unknown_key, "rope_thetta"),
        (_wrong_shape, "model.norm.weight"),
    ],
)
def test_a_broken_checkpoint_leaves_nothing(
    breaks: Callable[[Path], None],
    says: str,
    pair: tiny.TinyPair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = tmp_path / "target"
    shutil.copytree(pair.target, broken)
    breaks(broken)
    words = ["sweep", "--target", str(broken), "--draft", str(pair.draft)]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


def test_an_empty_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    words = ["sweep", "--workload", str(tmp_path / "empty.jsonl")]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "empty.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_output_folder_that_cannot_be_used(
    pair: tiny.TinyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert cli.main(["sweep", *_models(pair), "--out", str(out)]) == 2
        assert str(out) in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine", encoding="utf-8")
    assert cli.main(["sweep", *_models(pair), "--out", str(tmp_path / "full")]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["notes.txt"]


def test_a_folder_that_is_no_run_cannot_be_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "run.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_without_one_answer_is_a_broken_run(
    pair: tiny.TinyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "short"
    words = ["--requests", "2", "--blocks", "1", "--num-steps", "0", "--max-len", "1"]
    assert cli.main(["sweep", *_models(pair), *words, "--out", str(out)]) == 3
    assert "exceed max_len=1" in capsys.readouterr().err
    assert (out / "report.md").is_file()
