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
