from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.config import SpecConfig
from specbench.errors import OutputError
from specbench.resolve import Override
from specbench.run_json import (
    RUN_JSON,
    differences,
    make_run_json,
    read_run_json,
    refuse_other_run,
    run_text,
)

ASKED: dict[str, Any] = {
    "asked": {"batch_sizes": (1, 4), "load": {"seed": 0}},
    "points": [{"spec": SpecConfig.chain(2), "overrides": ()}],
    "dropped": [],
    "provenance": {"inputs": {"target_sha256": "aa", "target": "~/a"}},
}


def test_what_is_asked_becomes_plain_and_comes_back(tmp_path: Path) -> None:
    override = Override(name="topk", asked="4", resolved="1", reason="chains only")
    content = make_run_json({**ASKED, "dropped": [{"by": override}], "more": 1})
    assert content["schema"] == 1
    assert content["asked"]["batch_sizes"] == [1, 4]
    assert content["points"][0]["spec"]["num_draft_tokens"] == 3
    assert content["dropped"][0]["by"]["reason"] == "chains only"
    (tmp_path / RUN_JSON).write_text(run_text(content), "utf-8")
    assert read_run_json(tmp_path) == content


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(OutputError, match="lack points, dropped"):
        make_run_json({"asked": {}, "provenance": {}})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"schema": NaN}', "NaN is no number"),
        ("[]", "schema None"),
        ("{}", "schema None"),
        ('{"schema": "1"}', "schema '1'"),
        ('{"schema": 1}', "with asked, points, dropped, provenance"),
        ('{"schema": 2}', "newer version"),
    ],
)
def test_a_run_of_another_kind_is_refused(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / RUN_JSON).write_text(text, "utf-8")
    with pytest.raises(OutputError, match=named):
        read_run_json(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="folder of a run"):
        read_run_json(tmp_path)


def test_the_same_run_may_go_on_and_another_is_listed_key_by_key() -> None:
    old = make_run_json(ASKED)
    moved = json.loads(json.dumps(old))
    moved["provenance"]["inputs"]["target"] = "~/b"
    moved["dropped"] = ["said otherwise"]
    refuse_other_run(old, moved, Path("run"))
    other = json.loads(json.dumps(moved))
    other["asked"]["load"]["seed"] = 1
    other["asked"]["quick"] = True
    other["points"] = []
    other["provenance"]["inputs"]["target_sha256"] = "bb"
    with pytest.raises(OutputError) as caught:
        refuse_other_run(old, other, Path("run"))
    for part in (
        "asked.load.seed: 0 -> 1",
        "asked.quick: null -> true",
        "points: [",
        'inputs.target_sha256: "aa" -> "bb"',
    ):
        assert part in caught.value.what
    assert "batch_sizes" not in caught.value.what


def test_differences_of_equal_values_are_none() -> None:
    assert differences({"a": [1]}, {"a": [1]}, "x") == []
    assert differences(1, {"a": 1}, "x") == ['x: 1 -> {"a":1}']
