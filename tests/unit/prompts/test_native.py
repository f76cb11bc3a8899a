from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from specbench.errors import WorkloadError
from specbench.prompts.native import read_folder, read_prompts, sha256_of

ROWS: list[dict[str, Any]] = [
    {"id": "a-1", "category": "prose", "turns": ["Tell me more."], "held_out": True},
    {"id": "b-1", "category": "code", "turns": ["one", "two"], "system": "Be brief."},
]


def save(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> Path:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "prompts.jsonl").write_bytes(content)
    manifest = {
        "schema": 1,
        "name": "small",
        "description": "two prompts",
        "licence": "CC0-1.0",
        "categories": ["prose", "code"],
        "prompts": len(rows),
        "sha256": hashlib.sha256(content).hexdigest(),
        "max_tokens": 64,
        "source": "written for this test",
    }
    kept = {key: value for key, value in {**manifest, **changes}.items() if value is not None}
    (folder / "workload.json").write_text(json.dumps(kept), "utf-8")
    return folder


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    manifest, prompts = read_folder(save(tmp_path, ROWS))
    assert (manifest.name, manifest.licence, manifest.max_tokens) == ("small", "CC0-1.0", 64)
    assert [(p.prompt_id, p.category, p.turns, p.held_out) for p in prompts] == [
        ("a-1", "prose", ("Tell me more.",), True),
        ("b-1", "code", ("one", "two"), None),
    ]
    assert prompts[1].system == "Be brief."
    assert manifest.sha256 == sha256_of(tmp_path / "prompts.jsonl")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sha256": "0" * 64}, "SHA-256"),
        ({"prompts": 3}, "promises 3 prompts"),
        ({"categories": ["prose"]}, "promises 2 prompts in prose"),
        ({"schema": 2}, "schema 2"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": "64"}, "max_tokens='64' is a str"),
        ({"licence": None}, "'licence' is missing"),
        ({"license": "x"}, "Did you mean 'licence'"),
    ],
)
def test_a_manifest_that_does_not_agree_is_refused(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(WorkloadError, match=named):
        read_folder(save(tmp_path, ROWS, **changes))


def test_a_folder_without_its_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"workload\.json"):
        read_folder(tmp_path)
    save(tmp_path, ROWS)
    (tmp_path / "workload.json").write_bytes(b"\xff{}")
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_folder(tmp_path)
    save(tmp_path, ROWS)
    (tmp_path / "prompts.jsonl").unlink()
    with pytest.raises(WorkloadError, match=r"prompts\.jsonl cannot be read"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"id": "a-1", "category": "prose", "turns": ["again"]}, "'a-1' stands twice"),
        ({"id": "c", "category": "prose", "turn": ["x"]}, "Did you mean 'turns'"),
        ({"id": "c", "category": "prose", "turns": []}, "empty turn"),
        ({"id": "c", "category": "prose"}, "turns is missing"),
        ({"id": 3, "category": "prose", "turns": ["x"]}, "id is a int"),
        ({"id": "c", "category": "synthetic", "turns": ["x"]}, "kept for random words"),
        ({"id": "c", "category": "prose", "turns": ["x"], "held_out": "yes"}, "held_out='yes'"),
        ({"id": "c", "category": "prose", "turns": ["x" * (1 << 20)]}, "longer than 1048576"),
        ({"question_id": 1, "category": "prose", "turns": ["x"]}, "Try mt-bench:"),
        ({"conversations": []}, "Try sharegpt:"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, row: dict[str, Any], named: str) -> None:
    path = save(tmp_path, [*ROWS, row]) / "prompts.jsonl"
    with pytest.raises(WorkloadError, match=named) as caught:
        read_prompts(path)
    assert f"{path} line 3" in str(caught.value)


def test_an_empty_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("\n", "utf-8")
    with pytest.raises(WorkloadError, match="is empty"):
        read_prompts(tmp_path / "prompts.jsonl")
