"""``specbench doctor gap``: known figures, a pair that is measured, flags that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.cli import main
from tests.tiny import shared_pair
from tests.unit.test_doctor_pair_cli import PAIR_FLAGS, given_with


@pytest.mark.parametrize(
    "flags",
    [*PAIR_FLAGS[1:4], *PAIR_FLAGS[5:8], ["--train-data", "x"], ["--train-template", "x"]],
    ids=lambda words: words[0],
)
def test_gap_refuses_a_pair_flag_without_a_pair(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["gap", "--train-accuracy", "0.7", "--framework", "eagle"]
    told = given_with(words, flags, capsys)
    assert f"{flags[0]}: has no meaning without a pair. Add --target and --draft" in told
    assert given_with([*words, "--target", "", "--draft", ""], [], capsys).endswith(
        "--target is empty. Give a value, or leave it out."
    )


@pytest.mark.parametrize("name", ["restricted", "unknown"])
def test_gap_refuses_a_figure_that_the_framework_has_no_use_for(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["gap", "--train-accuracy", "0.7", "--framework"]
    told = given_with([*words, "eagle"], [f"--{name}", "0.5"], capsys)
    assert f"--{name}: has no meaning with eagle" in told
    assert main(["doctor", *words, "speculators", f"--{name}", "0.5"]) == 0


def test_gap_says_which_accuracies_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "gap", "--framework", "eagle", "--train-accuracy"]
    assert main([*words, "0.7,0.6,0.5,0.4,0.3"]) == 0
    assert "Accuracies of 2 further steps were not used: --num-steps 3." in capsys.readouterr().out
    for accuracies in ("0.7,0.6,0.5", "0.7"):
        assert main([*words, accuracies, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["notes"] == []


def test_gap(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "gap", "--train-accuracy", "0.747", "--framework", "specforge"]
    assert main([*words, "--num-steps", "5"]) == 0
    told = capsys.readouterr().out
    assert "accept length of 3.27" in told
    assert "not measured" in told
    assert main([*words, "--num-steps", "5", "--accept-length", "1.9"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "points (served 48.0 % is inferred from the accept length, taking acceptance" in told
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
