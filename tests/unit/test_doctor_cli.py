"""``specbench doctor``: exit codes, outputs, and what is kept when it breaks off."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specbench import demo
from specbench.cli import main
from specbench.doctor import checks_wiring, parity_setup
from specbench.doctor.parity_setup import Build, engines
from specbench.engine.faults import inject
from specbench.engine.pair import ModelPair
from specbench.errors import CheckpointError, EngineError
from tests.tiny import shared_pair
from tests.unit.doctor.test_symptoms_run import write

OVERRIDE = "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 16"


def test_static_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--static"]) == 0
    told = capsys.readouterr().out
    assert "1 note; no fault shown." in told
    assert "Right as it is for sglang from 0.5.8. For vllm up to 0.16 write" in told
    assert "without --static the draft is scored" in told


def test_static_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from specbench.cli import main; sys.exit(main(['doctor', '--static']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_error_is_exit_code_1_in_every_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = tmp_path / "doctor.md"
    words = ["doctor", "--launch", OVERRIDE, "--markdown", str(section)]
    assert main([*words, "--json"]) == 1
    table = json.loads(capsys.readouterr().out)
    assert [f["code"] for f in table["findings"]] == ["launch.override"]
    assert table["stopped"] == ""
    assert "launch.override" in section.read_text()
    assert main([*words, "--explain", "launch.override"]) == 1
    assert "asked 16, resolved 2" in " ".join(capsys.readouterr().out.split())


def test_a_narrow_terminal_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["doctor", "--launch", OVERRIDE]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert "silently becomes 2" in " ".join(" ".join(lines).split())


def test_a_broken_off_probe_keeps_what_was_learned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise EngineError("the probe broke.")

    monkeypatch.setattr(checks_wiring, "load", broken)
    assert main(["doctor"]) == 3
    seen = capsys.readouterr()
    assert "ids.engines" in seen.out
    assert "the probe broke." in seen.err

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checks_wiring, "load", interrupted)
    assert main(["doctor"]) == 3
    assert "interrupted" in capsys.readouterr().err


def test_wrong_files_are_said_before_any_probe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(demo.DRAFT, tmp_path / "d")
    config = json.loads((tmp_path / "d" / "config.json").read_text())
    config["target_hidden_size"] = 512
    (tmp_path / "d" / "config.json").write_text(json.dumps(config))
    assert main(["doctor", "--target", str(demo.TARGET), "--draft", str(tmp_path / "d")]) == 1
    told = capsys.readouterr().out
    assert "draft.target" in told
    assert "probe was left out" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--target", "x"], "go together"),
        (["--control", "graph=x"], "--control needs --run"),
        (["--steps", "3"], "--steps needs --per-position"),
        (["--explain", "nonsense"], "is not a code"),
        (["--requests", "0"], "--requests 0"),
        (["--target", "/none", "--draft", "/none", "--static"], "/none"),
        (["--per-position", "a,b"], "--per-position"),
        (["--static", "--capture-ids", "a"], "--capture-ids"),
        (["--static", "--engine", "tgi"], "not a known code base"),
        (["--parity", "cache,trees"], "--parity 'trees'"),
        (["--tensor-parallel", "2", "--parity", "cache"], "needs ranks among --parity"),
        (["--tensor-parallel", "0"], "--tensor-parallel 0"),
        (["--run", "/none"], "/none"),
        (["--workload", "/none"], "/none"),
    ],
)
def test_wrong_use(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_gap(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "gap", "--train-accuracy", "0.747", "--framework", "specforge"]
    assert main([*words, "--num-steps", "5"]) == 0
    told = capsys.readouterr().out
    assert "accept length of 3.27" in told
    assert "not measured" in told
    assert main([*words, "--json", "--engine", "0.6"]) == 0
    assert json.loads(capsys.readouterr().out)["code"] == "gap.split"
    assert main([*words, "--full", "1.5"]) == 2
    assert main([*words, "--target", "x"]) == 2
    assert main([*words, "--train-data", "x"]) == 2


def test_gap_of_a_pair(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files, data = shared_pair(), tmp_path / "train.jsonl"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b" * 30}]
    data.write_text(json.dumps({"messages": turns}) + "\n")
    words = ["doctor", "gap", "--train-accuracy", "0.9", "--framework", "speculators", "--json"]
    pair = ["--target", str(files.target), "--draft", str(files.draft), "--requests", "3"]
    words += [*pair, "--max-tokens", "8"]
    assert main([*words, "--train-data", str(data)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "training replies" in told["measured_on"][1]
    points = {fact["where"]: fact["text"] for fact in told["evidence"]}
    assert points["engine"].startswith("+0.0 points")
    assert "not measured" not in points["off-policy text"]
    assert "not measured" in points["template"]
    assert main([*words, "--accept-length", "1.5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "measured 1.50" in told["title"]
    assert any(f["where"] == "engine" and "not measured" in f["text"] for f in told["evidence"])


def test_parity_and_step_costs_of_a_pair(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A draft that the wiring probe does not read is still run; a way that parts is an error."""
    files, section = shared_pair(), tmp_path / "doctor.md"

    def unread(*_: object, **__: object) -> None:
        raise CheckpointError("the probe reads drafts of one layer.")

    monkeypatch.setattr(checks_wiring, "load", unread)
    words = ["doctor", "--target", str(files.target), "--draft", str(files.draft)]
    words += ["--requests", "12", "--parity", "cache,ranks"]
    assert main([*words, "--json", "--markdown", str(section)]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["agrees"]) for row in table["parity"]] == [
        ("cache", True),
        ("ranks", None),
    ]
    assert table["step_costs"]["break_even"] > 0
    assert any("was not probed: the probe reads" in line for line in table["confirmed"])
    assert "Parity of caches after steps" in section.read_text()

    def wrong(pair: ModelPair, **_: object) -> Build:
        return engines(pair, change=lambda engine: inject(engine, "no_extend"))

    monkeypatch.setattr(parity_setup, "engines", wrong)
    assert main([*words, "--explain", "parity.cache"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "draft cache rows differ by" in told
    assert "engine/extend.py" in told


def test_what_was_judged_of_a_run_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(write(tmp_path / "mine", (1, lambda *_: 0.75)))
    assert main(["doctor", "--run", folder]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("Judged mine: k3, temperature 0, batch size 1: ")
    assert main(["doctor", "--run", folder, "--json", "--markdown", str(tmp_path / "md")]) == 0
    (line,) = json.loads(capsys.readouterr().out)["judged"]
    assert line.startswith("Judged mine: k3")
    assert "- Judged mine: k3" in (tmp_path / "md").read_text()


def test_symptoms_and_ids(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--per-position", "0.36,0.13,0.05", "--steps", "4000"]) == 0
    assert "shape.first" in capsys.readouterr().out
    assert main(["doctor", "ids", "--layers", "8"]) == 0
    assert "sglang" in capsys.readouterr().out
