"""``doctor ids``: the table for people and as JSON."""

from __future__ import annotations

import argparse
import json

import pytest

from specbench import ids_cli
from specbench.errors import ConfigError


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    ids_cli.add_parser(parser.add_subparsers())
    args = parser.parse_args(["ids", *words])
    return int(args.run(args))


def test_json_holds_every_reading(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--ids", "2,30,58", "--layers", "61", "--arch", "DeepseekV3", "--json")
    assert run(*words, "--from", "speculators==0.3") == 0
    rows = {(r["code"], r["versions"]): r for r in json.loads(capsys.readouterr().out)}
    assert rows["sglang", "0.5.8 to 0.5.12"]["meaning"] == [3, 31, 59]
    assert rows["sglang", "from 0.5.14"]["meaning"] == [2, 30, 58]
    assert rows["vllm", "from 0.32"]["write"] == [3, 31, 59]


def test_the_table_names_defaults_and_what_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--layers", "61", "--physical", "0,30,58") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "(default)" in told
    assert "embedding" in told


def test_what_cannot_be_expressed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--layers", "61", "--arch", "DeepseekV3", "--physical", "1,30,61", "--json")
    assert run(*words) == 0
    rows = {(r["code"], r["versions"]): r for r in json.loads(capsys.readouterr().out)}
    for code, versions, reason in (
        ("sglang", "from 0.5.14", "output of the last layer"),
        ("safeailab", "all", "reads no ids"),
        ("hf", "all", "output of the last layer"),
    ):
        assert rows[code, versions]["write"] is None
        assert reason in rows[code, versions]["cannot"]
    assert rows["vllm", "from 0.32"]["write"] == [1, 30, 61]


def test_flags_that_contradict() -> None:
    with pytest.raises(ConfigError, match="both name"):
        run("--layers", "8", "--ids", "1", "--from", "specforge", "--physical", "2")
    with pytest.raises(ConfigError, match="Integers such as"):
        run("--layers", "8", "--ids", "a,b")


def test_what_the_table_leaves_out_is_said_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--layers", "61", "--ids", "2,30,58") == 0
    told = capsys.readouterr().out
    assert "note: not read, so not in the table: sglang before 0.5.8; vllm after 0.16" in told
    assert "note: no --arch, so the rules of most classes; SGLang reads ids otherwise for" in told
    assert run("--layers", "61", "--arch", "Llama", "--ids", "2,30,58", "--from", "sglang==9") == 0
    told = capsys.readouterr().out
    assert "Llama has no rule of its own" in told
    assert "note: --from sglang==9: sglang 9 was not read" in told


def test_notes_keep_out_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--layers", "61", "--json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)
    assert "note: not read" in told.err


def test_a_class_that_nobody_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="--arch 'Nonsense': the rules for that class"):
        run("--layers", "8", "--arch", "Nonsense")
