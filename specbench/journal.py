"""Files that survive a crash: whole files replaced at once, and a log of blocks, each all or none.

A block is a few records that belong together. Its bytes are appended to one file per *part* and
forced to disk; then one line in the index says where they lie and what their checksums are. Only
that line makes the block exist. A process killed at any byte leaves at most bytes that no index
line speaks of, or an index line without its end; both are cut off when the log is next opened for
writing, and left out by readers. Damage anywhere else is an error, never a silent loss.

The writer holds an ``flock`` on the index. The kernel drops it with the process, so that a lock
cannot be left behind.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from specbench.errors import OutputError, RunError

INDEX = "blocks.jsonl"
TEMPORARY = ".specbench-"  # how the names of unfinished files begin

_CUT_OFF = "a block that was not saved whole is left out"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, with its suffix, which takes its place when all went well.

    The file is forced to disk before it is renamed, so that ``path`` is old or new, never part.

    Raises:
        OutputError: it cannot be written.
    """
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(4)}{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}.",
            todo="Choose another folder, or make room.",
        ) from error
    finally:
        with suppress(OSError):  # already renamed, or the folder is gone
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replace ``path`` by ``data`` (text as UTF-8) at once.

    Raises:
        OutputError: it cannot be written; what was there before is still there.
    """
    with replacing(path) as temporary:
        # a file name of no encoding, quoted in a report, must not cost the report
        raw = data.encode(errors="backslashreplace") if isinstance(data, str) else data
        temporary.write_bytes(raw)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One block of the log: its head, and offset, size and CRC-32 of its bytes in each part."""

    seq: int
    head: Mapping[str, Any]
    extents: Mapping[str, tuple[int, int, int]]

    def line(self) -> bytes:
        """The line of the index, which ends with the checksum of what stands before it."""
        extents = {name: list(extent) for name, extent in self.extents.items()}
        row = {"seq": self.seq, "head": self.head, "extents": extents}
        body = json.dumps(row, separators=(",", ":"), allow_nan=False)[:-1]
        return f'{body},"crc":{zlib.crc32(body.encode())}}}\n'.encode()

    @classmethod
    def parse(cls, line: bytes) -> Self | None:
        """The entry of a line of the index; None when the line is not whole."""
        body, mark, crc = line.rpartition(b',"crc":')
        if not mark or crc != b"%d}\n" % zlib.crc32(body):
            return None
        row = json.loads(body + b"}")
        extents = {name: (at, size, crc) for name, (at, size, crc) in row["extents"].items()}
        return cls(seq=row["seq"], head=row["head"], extents=extents)


class BlockLog:
    """The log in ``folder``; ``parts`` are the names of its files without ``.jsonl``.

    ``moved`` tells, when the lock is held, how many of the first blocks have left the file of a
    part: they were written elsewhere in another form, and the file holds only later blocks.

    Raises:
        OutputError: the log is damaged, another process writes to it, or it cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        parts: Sequence[str],
        *,
        write: bool,
        moved: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.folder = folder
        self.entries: list[Entry] = []
        self.notes: list[str] = []
        self._moved: Mapping[str, int] = {}
        self._files: dict[str, int] = {}
        self._ends = dict.fromkeys((INDEX, *parts), 0)
        try:
            if write:
                self._files[INDEX] = self._open(INDEX)
                self._lock()
            self._read_index()
            self._moved = moved()
            for part in parts:
                self._check_part(part)
            if write:
                for part in parts:
                    self._files[part] = self._open(f"{part}.jsonl")
                self._rollback()
                _sync_folder(folder)
        except BaseException:
            self.close()
            raise

    @property
    def writable(self) -> bool:
        """True until the log is closed, when it was opened for writing."""
        return bool(self._files)

    def append(self, head: Mapping[str, Any], parts: Mapping[str, bytes]) -> Entry:
        """Add a block; when this returns it is on disk, when it raises it does not exist.

        Args:
            head: JSON data that identifies the block.
            parts: bytes for every part, whole lines.

        Raises:
            RunError: the disk refuses (full, gone); blocks saved before are kept.
        """
        if not self.writable:
            raise OutputError(f"{self.folder} is not open for writing.", todo="Resume the run.")
        extents: dict[str, tuple[int, int, int]] = {}
        try:
            self._rollback()
            for part, data in parts.items():
                extents[part] = (self._ends[part], len(data), zlib.crc32(data))
                self._write(part, data)
            entry = Entry(seq=len(self.entries), head=head, extents=extents)
            line = entry.line()
            self._write(INDEX, line)
        except OSError as error:
            raise RunError(
                f"a block cannot be saved in {self.folder}: {error.strerror or error}.",
                expected="What was saved before is kept.",
                todo="Make room, then go on with --resume.",
            ) from error
        self.entries.append(entry)
        for name, size in ((INDEX, len(line)), *((part, len(d)) for part, d in parts.items())):
            self._ends[name] += size
        return entry

    def read(self, entry: Entry, part: str) -> bytes:
        """The bytes of ``entry`` in ``part``.

        Raises:
            OutputError: they are missing or not what was written.
        """
        offset, size, crc = entry.extents[part]
        path = self.folder / f"{part}.jsonl"
        if not size:
            return b""
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(size)
        except OSError as error:
            raise OutputError(f"{path} cannot be read: {error.strerror or error}.") from error
        if len(data) != size or zlib.crc32(data) != crc:
            raise OutputError(
                f"{path} is damaged in the {size} bytes from {offset} (block {entry.seq}).",
                todo="Restore the file from a copy, or measure again in a new folder.",
            )
        return data

    def close(self) -> None:
        """Close the files and give the lock back."""
        for handle in self._files.values():
            os.close(handle)
        self._files = {}

    def _open(self, name: str) -> int:
        try:
            return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputError(
                f"{self.folder / name} cannot be opened for writing: {error.strerror or error}.",
                todo="Choose another folder.",
            ) from error

    def _lock(self) -> None:
        try:
            fcntl.flock(self._files[INDEX], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                self.notes.append(f"the file system cannot lock {INDEX}: keep other writers away")
                return
            raise OutputError(
                f"another process is writing to {self.folder}.",
                todo="Wait for it, or choose another folder.",
            ) from error

    def _read_index(self) -> None:
        """Take the entries up to the first line that is not whole, which must be the last."""
        path = self.folder / INDEX
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise OutputError(f"{path} cannot be read: {error.strerror or error}.") from error
        for number, line in enumerate(lines):
            entry = Entry.parse(line)
            if entry is None:
                if any(Entry.parse(later) for later in lines[number + 1 :]):
                    raise OutputError(
                        f"{path} is damaged in line {number + 1}, and goes on after it.",
                        todo="Restore the file from a copy, or measure again in a new folder.",
                    )
                self.notes.append(_CUT_OFF)
                return
            if entry.seq != number:
                raise OutputError(f"{path} line {number + 1} holds block {entry.seq}.")
            self.entries.append(entry)
            self._ends[INDEX] += len(line)

    def _check_part(self, part: str) -> None:
        """Where the known bytes of ``part`` end, and whether the file has them."""
        path = self.folder / f"{part}.jsonl"
        known = self.entries[self._moved.get(part, 0) :]
        self._ends[part] = max((sum(entry.extents[part][:2]) for entry in known), default=0)
        size = path.stat().st_size if path.exists() else 0
        if size < self._ends[part]:
            raise OutputError(
                f"{path} has {size} bytes, but blocks reach to byte {self._ends[part]}.",
                todo="Restore the file from a copy, or measure again in a new folder.",
            )
        if size > self._ends[part] and not self._moved.get(part) and _CUT_OFF not in self.notes:
            self.notes.append(_CUT_OFF)

    def _rollback(self) -> None:
        """Cut every file to what the index knows: an append may have broken off before."""
        for name, handle in self._files.items():
            if os.fstat(handle).st_size != self._ends[name]:
                os.ftruncate(handle, self._ends[name])

    def _write(self, name: str, data: bytes) -> None:
        """Write ``data`` at the known end of a file and force it to disk."""
        handle, at = self._files[name], self._ends[name]
        view = memoryview(data)
        while view:
            done = os.pwrite(handle, view, at)
            view, at = view[done:], at + done
        if data:
            os.fsync(handle)
