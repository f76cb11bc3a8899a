"""A file of lines that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.errors import OutputError
from specbench.grown_file import append_lines, whole_lines


def test_lines_are_added(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    append_lines(path, "a\n")
    append_lines(path, "b\nc\n")
    assert path.read_text() == whole_lines(path) == "a\nb\nc\n"


@pytest.mark.parametrize("torn", ["half", "a\nhalf", "a\nb\nha"])
def test_what_a_killed_writer_left_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "f.csv"
    path.write_text(torn)
    whole = torn[: torn.rfind("\n") + 1]
    assert whole_lines(path) == whole
    append_lines(path, "new\n")
    assert path.read_text() == whole + "new\n"


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    assert whole_lines(tmp_path / "none") == ""


def test_what_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        append_lines(tmp_path, "a\n")
    with pytest.raises(OutputError, match="cannot be read"):
        whole_lines(tmp_path)
    (tmp_path / "f").write_bytes(b"\xff\n")
    with pytest.raises(OutputError, match="cannot be read"):
        whole_lines(tmp_path / "f")
