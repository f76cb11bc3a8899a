"""The doctor's flags of a pair: none is ignored; parity and step costs of a pair that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.cli import main
from specbench.doctor import checks_wiring, parity_setup
from specbench.doctor.parity_setup import Build, engines
from specbench.doctor_gap_cli import flag
from specbench.doctor_pair_cli import OF_PAIR
from specbench.engine.faults import inject
from specbench.engine.pair import ModelPair
from specbench.errors import CheckpointError
from tests.tiny import shared_pair

OVERRIDE = "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 16"
PAIR_FLAGS = [
    ["--static"],
    ["--capture-ids", "1,2,3"],
    ["--capture-default"],
    ["--d2t", "direct"],
    ["--engine", "vllm"],
    ["--workload", "default"],
    ["--requests", "36"],
    ["--max-tokens", "32"],
    ["--parity", "none"],
    ["--propose-ids", "0,2,4"],
    ["--tensor-parallel", "1"],
]


def given_with(source: list[str], flags: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said when ``flags`` stand beside ``source``."""
    assert main(["doctor", *source, *flags]) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("flags", PAIR_FLAGS, ids=lambda words: words[0])
def test_a_pair_flag_without_a_pair_is_refused(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where its value is the default: nothing that is given may do nothing."""
    for source in (
        ["--run", "/none"],
        ["--metrics", "/none"],
        ["--launch", OVERRIDE],
        ["--accept-length", "2"],
        ["--per-position", "0.5", "--steps", "9"],
    ):
        told = given_with(source, flags, capsys)
        assert f"{flags[0]}: has no meaning where no pair is looked at" in told
        assert "Add --target and --draft" in told


def test_every_flag_of_a_pair_is_tried() -> None:
    assert {flag(name) for name in OF_PAIR} == {words[0] for words in PAIR_FLAGS}


@pytest.mark.parametrize("flags", PAIR_FLAGS[5:], ids=lambda words: words[0])
def test_a_flag_of_the_probe_beside_static_is_refused(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{flags[0]}: has no meaning with --static" in given_with(["--static"], flags, capsys)


@pytest.mark.parametrize("action", ["ids", "gap"])
def test_a_flag_before_an_action_is_refused(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ["--layers", "8"] if action == "ids" else ["--train-accuracy", "0.7", "--framework"]
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", "--json", "--target", "x", action, *rest, *["eagle"][: action == "gap"]])
    assert stopped.value.code == 2
    assert f"--target, --json: write flags of {action} after {action}" in capsys.readouterr().err


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
    assert any("was not probed: the probe reads" in line for line in table["skipped"])
    assert "Parity of caches after steps" in section.read_text()

    def wrong(pair: ModelPair, **_: object) -> Build:
        return engines(pair, change=lambda engine: inject(engine, "no_extend"))

    monkeypatch.setattr(parity_setup, "engines", wrong)
    assert main([*words, "--explain", "parity.cache"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "draft cache rows differ by" in told
    assert "engine/extend.py" in told
