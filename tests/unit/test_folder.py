from __future__ import annotations

from pathlib import Path

import pytest

from specbench.errors import OutputError
from specbench.folder import OURS, clear, make_empty, unused


def test_a_folder_is_made_with_its_parents_or_must_be_empty(tmp_path: Path) -> None:
    make_empty(tmp_path / "a" / "b")
    make_empty(tmp_path / "a" / "b")
    with pytest.raises(OutputError, match="a exists and is not empty"):
        make_empty(tmp_path / "a")
    (tmp_path / "file").write_text("x", "utf-8")
    with pytest.raises(OutputError, match="cannot be made"):
        make_empty(tmp_path / "file")


def test_what_an_early_kill_leaves_is_unused_and_can_be_cleared(tmp_path: Path) -> None:
    for name in ("blocks.jsonl", "requests.jsonl"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".specbench-1f.json").write_text("half", "utf-8")
    assert unused(tmp_path)
    clear(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blocks.jsonl", "requests.jsonl"]


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_file_with_content_is_use(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x", "utf-8")
    assert not unused(tmp_path)


def test_a_foreign_file_is_use_even_when_empty(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")
    assert not unused(tmp_path)
    with pytest.raises(OutputError, match="cannot be read"):
        unused(tmp_path / "gone")
