from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from specbench.errors import OutputError, RunError
from specbench.journal import INDEX, TEMPORARY, BlockLog, Entry, replacing, write_atomically

PARTS = ("a", "b")


def opened(folder: Path, *, write: bool = True, moved: int = 0) -> BlockLog:
    return BlockLog(folder, PARTS, write=write, moved=lambda: {"b": moved} if moved else {})


def fill(folder: Path, count: int) -> None:
    log = opened(folder)
    for i in range(len(log.entries), count):
        log.append({"i": i}, {"a": b"a%d\n" % i * (i + 1), "b": b"" if i == 1 else b"b\n"})
    log.close()


def held(log: BlockLog) -> list[tuple[Any, bytes, bytes]]:
    return [(e.head["i"], log.read(e, "a"), log.read(e, "b")) for e in log.entries]


def test_a_file_is_replaced_at_once_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    write_atomically(path, "old ü")
    with contextlib.suppress(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half", "utf-8")
        assert temporary.suffix == ".txt"
        raise ZeroDivisionError
    assert path.read_text("utf-8") == "old ü"
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_file_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write_atomically(tmp_path / "gone" / "x.txt", "x")
    (tmp_path / "dir").mkdir()
    with pytest.raises(OutputError, match="cannot be written") as caught:
        write_atomically(tmp_path / "dir", "x")
    assert caught.value.exit_code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["dir"]


def test_blocks_come_back_in_order_and_the_log_goes_on(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    fill(tmp_path, 4)
    expected = [(0, b"a0\n", b"b\n"), (1, b"a1\na1\n", b"")]
    log = opened(tmp_path, write=False)
    assert held(log)[:2] == expected
    assert len(held(log)) == 4
    assert not log.notes
    assert not log.writable
    with pytest.raises(OutputError, match="not open for writing"):
        log.append({}, {})


def test_any_cut_leaves_whole_blocks_only(tmp_path: Path) -> None:
    """Killed at any byte: the writer has written parts in order, then the line of the index."""
    fill(tmp_path, 2)
    before = {name: (tmp_path / name).read_bytes() for name in ("a.jsonl", "b.jsonl", INDEX)}
    kept = held(opened(tmp_path, write=False))
    fill(tmp_path, 3)
    after = {name: (tmp_path / name).read_bytes() for name in before}
    for cut_file in before:
        for cut in range(len(before[cut_file]), len(after[cut_file])):
            for name in before:
                whole = list(before).index(name) < list(before).index(cut_file)
                content = after[name] if whole else before[name]
                (tmp_path / name).write_bytes(after[name][:cut] if name == cut_file else content)
            reader = opened(tmp_path, write=False)
            assert held(reader) == kept
            torn = cut > len(before[cut_file]) or cut_file != "a.jsonl"
            assert len(reader.notes) == torn
            fill(tmp_path, 3)
            assert {name: (tmp_path / name).read_bytes() for name in before} == after


@pytest.mark.parametrize("call", range(6))
def test_a_disk_that_is_full_loses_only_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    fill(tmp_path, 2)
    log = opened(tmp_path)
    real, calls = os.pwrite, iter(range(99))

    def full(handle: int, data: bytes, at: int) -> int:
        number = next(calls)
        if number == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, bytes(data)[: 1 if number == call - 1 else None], at)

    monkeypatch.setattr(os, "pwrite", full)
    parts = {"a": b"a2\n" * 3, "b": b"b\n"}

    def save() -> None:
        for _ in range(3):
            log.append({"i": 2}, parts)

    with pytest.raises(RunError, match="No space left"):
        save()
    done = len(log.entries)
    monkeypatch.undo()
    assert len(held(opened(tmp_path, write=False))) == done
    log.append({"i": 9}, {"a": b"z\n", "b": b"z\n"})
    log.close()
    assert held(opened(tmp_path, write=False))[-1] == (9, b"z\n", b"z\n")
    assert len(held(opened(tmp_path, write=False))) == done + 1


def test_damage_in_the_middle_is_never_silent(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    index = (tmp_path / INDEX).read_bytes()
    (tmp_path / INDEX).write_bytes(index.replace(b'"i":1', b'"i":7'))
    with pytest.raises(OutputError, match="damaged in line 2"):
        opened(tmp_path)
    lines = index.splitlines(keepends=True)
    (tmp_path / INDEX).write_bytes(lines[0] + lines[2])
    with pytest.raises(OutputError, match="line 2 holds block 2"):
        opened(tmp_path)
    (tmp_path / INDEX).write_bytes(index)
    data = bytearray((tmp_path / "a.jsonl").read_bytes())
    data[4] ^= 1
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(OutputError, match=r"a\.jsonl is damaged .*block 1"):
        held(opened(tmp_path, write=False))
    (tmp_path / "a.jsonl").write_bytes(data[:-1])
    with pytest.raises(OutputError, match="blocks reach to byte"):
        opened(tmp_path)


def test_a_part_can_move_away(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    (tmp_path / "b.jsonl").unlink()
    log = opened(tmp_path, moved=3)
    entry = log.append({"i": 3}, {"a": b"x\n", "b": b"later\n"})
    assert entry.extents["b"][0] == 0
    log.close()
    reader = opened(tmp_path, write=False, moved=3)
    assert reader.read(reader.entries[3], "b") == b"later\n"
    assert not reader.notes


def test_one_writer_at_a_time_and_readers_beside_it(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append({"i": 0}, {"a": b"x\n", "b": b""})
    with pytest.raises(OutputError, match="another process is writing"):
        opened(tmp_path)
    assert len(opened(tmp_path, write=False).entries) == 1
    log.append({"i": 1}, {"a": b"y\n", "b": b""})
    log.close()
    log = opened(tmp_path)
    assert len(log.entries) == 2
    log.close()


def test_a_folder_that_cannot_be_used_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be opened"):
        opened(tmp_path / "gone")
    with pytest.raises(OutputError, match="cannot be read"):
        opened(tmp_path / "gone", write=False)
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(OutputError, match=r"a\.jsonl"):
        opened(tmp_path)


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b'{"seq":0,"crc":1}\n', b"\x00" * 40])
def test_a_line_that_is_not_whole_is_no_entry(line: bytes) -> None:
    assert Entry.parse(line) is None
    entry = Entry(seq=0, head={}, extents={"a": (0, 1, 2)})
    assert Entry.parse(entry.line()) == entry
    assert Entry.parse(entry.line()[:-1]) is None
    assert TEMPORARY.startswith(".")


def test_text_of_no_encoding_is_escaped(tmp_path: Path) -> None:
    write_atomically(tmp_path / "report.md", "out/b\udcff")
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == r"out/b\udcff"
