from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.errors import WorkloadError
from specbench.prompts import reading
from specbench.prompts.reading import parse, read_lines, read_records

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def values(path: Path, **bounds: int) -> list[dict[str, Any]]:
    return [dict(record.values) for record in read_records(path, **bounds)]


def test_lines_and_array_and_gzip_give_the_same_records(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": "ü🙂"}, {"a": [{"b": "]"}]}]
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    plain = write(tmp_path / "a.jsonl", f"\n{lines}\n\n")
    array = write(
        tmp_path / "b.json", " \n" + json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    )
    packed = write(tmp_path / "c.bin", gzip.compress(lines.encode()))
    marked = write(tmp_path / "d.jsonl", b"\xef\xbb\xbf" + lines.encode())
    windows = write(tmp_path / "e.jsonl", lines.replace("\n", "\r\n"))
    for path in (plain, array, packed, marked, windows):
        assert values(path) == rows
    assert next(read_records(plain)).where == f"{plain} line 2"
    assert [record.where for record in read_records(array)][2] == f"{array} record 3"


@settings(deadline=None, max_examples=20)
@given(
    rows=st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4), chunk=st.integers(1, 9)
)
def test_an_array_is_read_whole_in_windows_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("array") / "rows.json"
    write(path, json.dumps(rows, ensure_ascii=True, indent=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_CHUNK", chunk)
        assert values(path) == rows


def test_an_empty_file_and_an_empty_array_hold_nothing(tmp_path: Path) -> None:
    assert values(write(tmp_path / "a.jsonl", "")) == []
    assert values(write(tmp_path / "b.jsonl", "\n \n")) == []
    assert values(write(tmp_path / "c.json", "[ ]")) == []


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        ('{"a": 1}\n[1]\n', "line 2 holds a list"),
        ('{"a": 1, "a": 2}\n', "line 1 .*'a' stands twice"),
        ('{"a": NaN}\n', "line 1 .*NaN"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "line 2 is not UTF-8 at byte 8"),
        (b'{"a": "\x00"}\n', "line 1 is not JSON"),
        ('{"a": ' + "[" * 200_000, "line 1 is not JSON"),
        ('[{"a": 1}, {"a": 2]', "record 2 is not JSON or cut short"),
        ('[{"a": 1}, {"a": 2}', "record 2 is followed by ''"),
        ('[{"a": 1} {"a": 2}]', "record 1 is followed by '{'"),
        ('[{"a": 1}, 5]', "record 2 holds a int"),
        ('[{"a": 1}] x', "goes on after its array"),
        (b'[{"a": "\xff"}]', "not UTF-8"),
        (gzip.compress(b'{"a": 1}\n' * 99)[:-9], "cannot be unpacked"),
        (b"\x1f\x8b" + b"junk" * 9, "cannot be unpacked"),
    ],
)
def test_what_is_malformed_is_named_with_its_place(
    tmp_path: Path, content: bytes | str, named: str
) -> None:
    path = write(tmp_path / "x.jsonl", content)
    with pytest.raises(WorkloadError, match=named) as caught:
        values(path)
    assert str(path) in str(caught.value)


def test_a_line_and_a_record_have_a_longest_size(tmp_path: Path) -> None:
    row = json.dumps({"a": "x" * 80})
    path = write(tmp_path / "a.jsonl", f'{{"a": 1}}\n{row}\n')
    assert len(values(path, longest=len(row) + 1)) == 2
    with pytest.raises(WorkloadError, match="line 2 is longer than 40 bytes"):
        values(path, longest=40)
    array = write(tmp_path / "b.json", f"[{row[:-1]}")
    with pytest.raises(WorkloadError, match="longer than 40 characters"):
        values(array, longest=40)


def test_a_file_that_unpacks_without_end_is_stopped(tmp_path: Path) -> None:
    bomb = write(tmp_path / "bomb.jsonl.gz", gzip.compress(b"\n" * 5_000_000))
    assert bomb.stat().st_size < 10_000
    with pytest.raises(WorkloadError, match="more than 100000 bytes"):
        values(bomb, unpacked=100_000)
    array = write(tmp_path / "bomb.json", gzip.compress(b"[" + b" " * 5_000_000))
    with pytest.raises(WorkloadError, match="more than 100000 bytes"):
        values(array, unpacked=100_000)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="does not exist"):
        values(tmp_path / "gone.jsonl")
    with pytest.raises(WorkloadError, match="not a regular file"):
        values(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkloadError, match="not a regular file"):
        values(tmp_path / "pipe")


def test_parquet_rows_are_records(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"id": f"q{i}", "turns": ["a", "b"], "note": None} for i in range(130)]
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    assert values(path) == rows
    assert [record.where for record in read_records(path)][129] == f"{path} row 130"
    with pytest.raises(WorkloadError, match="more than 10 bytes"):
        values(path, unpacked=10)
    with pytest.raises(WorkloadError, match="not a readable parquet file"):
        values(write(tmp_path / "y.parquet", path.read_bytes()[:-20]))


def test_lines_of_text_are_records(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\n\n two\r\n")
    assert [(r.number, r.values["text"]) for r in read_lines(path)] == [(1, "one"), (3, " two")]
    with pytest.raises(WorkloadError, match="line 1 is longer than 2 bytes"):
        list(read_lines(path, longest=2))


def test_parse_names_the_place() -> None:
    assert parse("[1]", "here") == [1]
    with pytest.raises(WorkloadError, match="here is not JSON"):
        parse("{", "here")
