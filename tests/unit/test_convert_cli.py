"""``specbench convert`` says which rule it took for the ids, and refuses a version that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench import demo
from specbench.cli import main

PAIR = ("--draft", str(demo.DRAFT), "--target", str(demo.TARGET), "--to", "specforge")


def converted(out: Path, engine: str) -> int:
    return main(["convert", *PAIR, "--for", engine, "--out", str(out)])


@pytest.mark.parametrize(
    ("engine", "note"),
    [
        ("sglang", "note: no version of sglang is named"),
        ("sglang==0.9", "note: sglang 0.9 was not read, the newest that was is 0.5.23"),
        ("sglang==0.5.23", ""),
    ],
)
def test_the_rule_that_was_taken_is_said(
    tmp_path: Path, engine: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert converted(tmp_path / "out", engine) == 0
    said = capsys.readouterr().out
    assert f"layer_ids = [1, 3, 6], as {engine} reads them" in said
    assert "the rule taken is sglang from 0.5.8: X + 1 (the output of layer X)" in said
    assert note in said
    assert ("note: " in said) is bool(note)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("sglang==", "'sglang==' names no version"),
        ("vllm", "depends on the version"),
        ("vllm==0.20", "was not read for that version"),
    ],
)
def test_a_version_that_is_none_is_refused(
    tmp_path: Path, engine: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert converted(tmp_path / "out", engine) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
