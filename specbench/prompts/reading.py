"""Bounded readers of the files that prompts come in: JSON lines, a JSON array, parquet, text.

Each yields :class:`Record` objects that know their file and line, so that every error can name
them. Nothing is read without a bound: a line, a record and a file that unpacks have a largest
size, and a reader holds one record at a time (the ShareGPT array is some 700 MB in one element
list, and a compressed file may unpack to a thousand times its size).
"""

from __future__ import annotations

import codecs
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from specbench.errors import WorkloadError

MAX_LINE = 1 << 20
MAX_RECORD = 16 << 20
MAX_UNPACKED = 2 << 30

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One object of a file: ``where`` names file and line, ``number`` counts from 1."""

    where: str
    number: int
    values: Mapping[str, Any]


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put ``where`` in front of a WorkloadError that leaves the block."""
    try:
        yield
    except WorkloadError as error:
        raise WorkloadError(
            f"{where}: {error.what}", expected=error.expected, todo=error.todo
        ) from error


def read_records(
    path: Path, *, longest: int = MAX_RECORD, unpacked: int = MAX_UNPACKED
) -> Iterator[Record]:
    """Objects of JSON lines, of one JSON array or of a ``.parquet`` file, one at a time.

    A file that begins with gzip's magic number is unpacked on the way. Blank lines are skipped.

    Args:
        path: a regular file.
        longest: most bytes of one line, most characters of one element of an array.
        unpacked: most bytes of the whole file, unpacked.

    Raises:
        WorkloadError: unreadable, not UTF-8, not JSON, not an object, too long, or truncated.
    """
    with _reading(path):
        if path.suffix == ".parquet":
            yield from _parquet_records(path, unpacked)
            return
        with _opened(path) as stream:
            is_array = stream.read(4096).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        with _opened(path) as stream:
            if is_array:
                yield from _array_records(_Window(stream, path, longest, unpacked), path)
                return
            for number, text in _lines(stream, path, longest, unpacked):
                where = f"{path} line {number}"
                yield Record(where=where, number=number, values=_object(parse(text, where), where))


def read_lines(path: Path, *, longest: int = MAX_LINE) -> Iterator[Record]:
    """Lines of plain text that are not blank, each as ``{"text": line}``.

    Raises:
        WorkloadError: unreadable, not UTF-8, or a line of more than ``longest`` bytes.
    """
    with _reading(path), _opened(path) as stream:
        for number, text in _lines(stream, path, longest, MAX_UNPACKED):
            yield Record(where=f"{path} line {number}", number=number, values={"text": text})


def parse(text: str, where: str) -> Any:
    """``text`` as JSON; a key that stands twice, NaN and Infinity are errors.

    Raises:
        WorkloadError: not JSON; the message gives ``where`` and the column.
    """
    try:
        return _decoder().decode(text)
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{where} is not JSON: {error}.") from None


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} stands twice")
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WorkloadError(
            f"{where} holds a {type(value).__name__}.", expected="A JSON object, as in {...}."
        )
    return value


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn the errors of files and of unpacking into WorkloadErrors that name the file."""
    try:
        if not path.is_file():
            kind = "is not a regular file" if path.exists() else "does not exist"
            raise WorkloadError(f"{path} {kind}.", expected="A file with prompts.")
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{path} cannot be unpacked: {error}.") from error
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error}.") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The file as bytes, unpacked when it is gzip's."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacking:
            yield unpacking  # type: ignore[misc]  # GzipFile reads as IO[bytes] does


def _too_big(path: Path, unpacked: int) -> WorkloadError:
    return WorkloadError(
        f"{path} holds more than {unpacked} bytes when it is read to the end.",
        todo="Split it, or check that it is the file you meant.",
    )


def _lines(
    stream: IO[bytes], path: Path, longest: int, unpacked: int
) -> Generator[tuple[int, str], None, None]:
    """Numbered lines that are not blank, without their ends."""
    total = 0
    for number in itertools.count(1):
        raw = stream.readline(longest + 1)
        if not raw:
            return
        total += len(raw)
        if total > unpacked:
            raise _too_big(path, unpacked)
        where = f"{path} line {number}"
        if len(raw) > longest:
            raise WorkloadError(f"{where} is longer than {longest} bytes.")
        try:
            text = (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode()
        except UnicodeDecodeError as error:
            raise WorkloadError(
                f"{where} is not UTF-8 at byte {error.start + 1}.", todo="Convert it to UTF-8."
            ) from None
        if text.strip():
            yield number, text.rstrip("\r\n")


class _Window:
    """A window of text that slides over a byte stream and grows until one record fits."""

    def __init__(self, stream: IO[bytes], path: Path, longest: int, unpacked: int) -> None:
        self.path = path
        self._stream = stream
        self._longest = longest
        self._unpacked = unpacked
        self._total = 0
        self._text = ""
        self._at = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")("strict")
        self._json = _decoder()

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def skip(self) -> None:
        """Step over the character that ``peek`` showed."""
        self._at += 1

    def value(self, where: str) -> Any:
        """The JSON value that begins here."""
        while True:
            try:
                value, self._at = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > self._longest:
                    raise WorkloadError(
                        f"{where} is not JSON or longer than {self._longest} characters: {error}."
                    ) from None
                if not self._more():
                    raise WorkloadError(f"{where} is not JSON or cut short: {error}.") from None
            else:
                return value

    def _more(self) -> bool:
        raw = self._stream.read(_CHUNK)
        self._total += len(raw)
        if self._total > self._unpacked:
            raise _too_big(self.path, self._unpacked)
        try:
            text = self._utf8.decode(raw, final=not raw)
        except UnicodeDecodeError:
            raise WorkloadError(
                f"{self.path} is not UTF-8 in the {_CHUNK} bytes before {self._total}.",
                todo="Convert it to UTF-8.",
            ) from None
        self._text, self._at = self._text[self._at :] + text, 0
        return bool(raw)


def _array_records(window: _Window, path: Path) -> Iterator[Record]:
    """Elements of the array that ``window`` stands before."""
    window.peek()
    window.skip()
    if window.peek() != "]":
        for number in itertools.count(1):
            where = f"{path} record {number}"
            window.peek()
            yield Record(where=where, number=number, values=_object(window.value(where), where))
            after = window.peek()
            if after == "]":
                break
            if after != ",":
                raise WorkloadError(f"{where} is followed by {after!r}.", expected="',' or ']'.")
            window.skip()
    window.skip()
    if window.peek():
        raise WorkloadError(f"{path} goes on after its array has ended.")


def _parquet_records(path: Path, unpacked: int) -> Iterator[Record]:
    """Rows of a parquet file, read in small batches."""
    import pyarrow as pa  # only here: it takes long to import
    import pyarrow.parquet as pq

    try:
        with closing(pq.ParquetFile(path)) as file:
            groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
            if sum(group.total_byte_size for group in groups) > unpacked:
                raise _too_big(path, unpacked)
            number = 0
            for batch in file.iter_batches(batch_size=64):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(where=f"{path} row {number}", number=number, values=values)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path} is not a readable parquet file: {error}.") from error
