"""``specbench doctor``: exit codes, outputs, and what is kept when it breaks off."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specbench import demo, doctor_cli
from specbench.cli import main
from specbench.doctor import checks_wiring
from specbench.errors import EngineError
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
    assert "skipped The probe was left out" in told


def test_a_pair_that_is_not_run_here_is_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target in fp8 may be served rightly: what was not looked at is said, and no gate closes."""
    target = tmp_path / "t"
    shutil.copytree(demo.TARGET, target)
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (target / "config.json").write_text(json.dumps(config))
    assert main(["doctor", "--target", str(target), "--draft", str(demo.DRAFT)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "files.unsupported" in told
    assert "skipped The probe was left out: this engine does not run the pair." in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--target", "x"], "go together"),
        (["--control", "graph=x"], "--control needs --run"),
        (["--since", "x", "--run", "y"], "--since needs --metrics"),
        (["--point", "k3", "--accept-length", "2"], "--point needs --run or --metrics"),
        (["--expect", "0.7", "--accept-length", "2"], "--expect needs --run, --metrics"),
        (["--break-even", "2"], "--break-even needs --run"),
        (["--explain", "fc.width", "--json"], "--explain and --json"),
        (["--launch", ""], "--launch is empty"),
        (["--target", "", "--draft", ""], "--target is empty"),
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


def test_explain_alone_runs_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_cli, "look_at_pair", lambda *_: pytest.fail("a pair was looked at"))
    assert main(["doctor", "--explain", "map.direct"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "d2t holds offsets" in told
    assert "F11: d2t is read as target ids" in told
    assert "Nothing was looked at" in told


def test_a_failure_is_explained_with_its_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_cli, "look_at_pair", lambda *_: pytest.fail("a pair was looked at"))
    assert main(["doctor", "--explain", "F4"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("F4: Graphs were captured before the draft's layer ids were set")
    assert "launch.graphs, engine.verify_slots, parity.graphs" in told
    assert "Nothing was looked at" in told


def test_a_failure_beside_something_gives_the_findings_that_name_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["doctor", "--per-position", "0.36,0.13,0.05", "--steps", "4000", "--explain"]
    assert main([*words, "F1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "F1: The engine captures default layers" in told
    assert "shape.first warn: " in told
    assert main([*words, "F4"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "None of these was found here." in told
    assert "shape.first" not in told


def test_explain_beside_something_gives_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--static", "--explain", "ids.engines"]) == 0
    told = capsys.readouterr().out
    assert "docs/failures.md" in told
    assert "Nothing was looked at" not in told
    assert "note: " in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--accept-length", "2", "--break-even", "3"], "--break-even was not used"),
        (["--per-position", "0.5", "--expect", "0.7"], "--expect was not used"),
        (
            ["--per-position", "0.5,0.3", "--steps", "9000", "--expect", "0.7,0.6,0.5"],
            "--expect names 3 positions and numbers given has 2",
        ),
    ],
)
def test_what_counts_cannot_answer_is_said(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 0
    assert told in " ".join(capsys.readouterr().out.split())


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
    assert main(["doctor", "--run", folder, "--point", "k3"]) == 0
    assert "(the one point that drafted)" in " ".join(capsys.readouterr().out.split())
    assert main(["doctor", "--run", folder, "--point", "k9"]) == 2
    assert "did not draft at k9" in " ".join(capsys.readouterr().err.split())


def test_symptoms_and_ids(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--per-position", "0.36,0.13,0.05", "--steps", "4000"]) == 0
    assert "shape.first" in capsys.readouterr().out
    assert main(["doctor", "ids", "--layers", "8"]) == 0
    assert "sglang" in capsys.readouterr().out
