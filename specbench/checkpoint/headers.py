"""The table of contents of safetensors files, read without torch and without trust.

A header is attacker-sized input: its length is checked against the file, its nesting against the
format, and nothing is allocated because a header claims it exists. Format: 8 bytes little-endian
length, that many bytes of JSON, then the data (safetensors README).
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specbench.errors import CheckpointError

MAX_HEADER_BYTES = 8 * 1024 * 1024  # of one file; the largest models' shards stay below 1 MB
MAX_TENSORS = 16_384  # in one file; models with more are sharded
MAX_DEPTH = 4
MAX_DIMS = 8
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "BOOL": 1, "U16": 2, "U32": 4, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip
# Possessive, and its end may be missing: a text of quotes without an end is passed over once.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = b"[]{}"
_NO_BRACKETS = bytes(sorted({*range(256)} - {*_BRACKETS}))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of one file; ``begin`` and ``end`` are absolute byte offsets."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    begin: int
    end: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Entries of one safetensors file by name.

    Raises:
        CheckpointError: the file is missing, truncated, or its header breaks the format.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise _broken(path, f"its header claims {length} bytes in a file of {size}")
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}.", todo="Check path and rights."
        ) from error
    table = _parse(path, text)
    _check_metadata(path, table.pop("__metadata__", {}))
    start = 8 + length
    entries = [_entry(path, name, raw, start) for name, raw in table.items()]
    _check_layout(path, entries, start, size)
    return {entry.name: entry for entry in entries}


def read_array(entry: TensorEntry) -> npt.NDArray[Any]:
    """The values of an integer or boolean tensor, flat; its bytes were checked to be there."""
    kinds = {"I64": "<i8", "I32": "<i4", "BOOL": "u1", "U8": "u1", "I8": "i1"}
    if entry.dtype not in kinds:
        raise CheckpointError(
            f"{entry.name} in {entry.path} is {entry.dtype}.", expected="An integer or boolean map."
        )
    with entry.path.open("rb") as file:
        file.seek(entry.begin)
        return np.frombuffer(file.read(entry.end - entry.begin), dtype=kinds[entry.dtype])


def parse_json(path: Path, text: bytes, max_depth: int) -> Any:
    """JSON with bounded nesting and without repeated keys.

    Raises:
        CheckpointError: not JSON, nested deeper than ``max_depth``, or a key appears twice.
    """
    if _depth(text) > max_depth:
        raise _unread(path, f"its JSON is nested deeper than {max_depth}")
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except _TwiceError as error:
        raise _unread(path, f"{error}, and readers differ in which they take") from error
    except (ValueError, RecursionError) as error:
        told = reprlib.repr(str(error))
        raise _unread(path, f"its JSON cannot be parsed ({told})") from error


class _TwiceError(ValueError):
    """A table of JSON names a key twice."""


def _depth(text: bytes) -> int:
    """How deep brackets outside strings are nested; looked at before anything is built of them."""
    marks = np.frombuffer(_STRING.sub(b"", text).translate(None, _NO_BRACKETS), np.uint8)
    opens = (marks == ord("[")) | (marks == ord("{"))
    return int(np.cumsum(np.where(opens, 1, -1)).max(initial=0))


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    count = text.count(b'"data_offsets"')  # each takes a hundred times as long once parsed
    if count > MAX_TENSORS:
        raise _broken(path, f"it lists {count} tensors, more than {MAX_TENSORS}")
    table = parse_json(path, text, MAX_DEPTH)
    if not isinstance(table, dict):
        raise _broken(path, "its header is not a table")
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        left = set(table)
        for name, _ in pairs:
            if name not in left:
                break
            left.remove(name)
        raise _TwiceError(f"the key {reprlib.repr(name)} stands twice in one table")
    return table


def _check_metadata(path: Path, table: Any) -> None:
    """Texts by name, or the library that reads the weights refuses the file."""
    if not isinstance(table, Mapping) or not all(isinstance(v, str) for v in table.values()):
        raise _broken(path, f"__metadata__ is {reprlib.repr(table)}, not texts by name")


def _entry(path: Path, name: str, raw: Any, start: int) -> TensorEntry:
    if not name.isprintable():  # half a surrogate pair, which the library refuses, among others
        raise _broken(path, f"it names a tensor {reprlib.repr(name)}")
    if not isinstance(raw, Mapping) or set(raw) != {"dtype", "shape", "data_offsets"}:
        raise _broken(path, f"entry {name!r} does not hold dtype, shape and data_offsets")
    dtype, shape, offsets = raw["dtype"], raw["shape"], raw["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        told = reprlib.repr(dtype)
        raise _broken(path, f"tensor {name!r} has dtype {told}, which is not supported")
    if not _naturals(shape) or len(shape) > MAX_DIMS or not _naturals(offsets) or len(offsets) != 2:
        told = f"shape {reprlib.repr(shape)} and offsets {reprlib.repr(offsets)}"
        raise _broken(path, f"tensor {name!r} has {told}")
    begin, end = offsets
    if end - begin != math.prod(shape) * DTYPE_BYTES[dtype]:
        raise _broken(path, f"tensor {name!r}: {end - begin} bytes for {dtype} of shape {shape}")
    return TensorEntry(
        name=name, dtype=dtype, shape=tuple(shape), path=path, begin=start + begin, end=start + end
    )


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values
    )


def _check_layout(path: Path, entries: list[TensorEntry], start: int, size: int) -> None:
    """The tensors must tile the data exactly: no overlap, no hole, nothing cut off."""
    at = start
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin != at:
            kind = "overlaps another" if entry.begin < at else "leaves a hole before it"
            raise _broken(path, f"tensor {entry.name!r} {kind}")
        at = entry.end
    if at != size:
        raise _broken(path, f"its tensors end at byte {at}, but the file has {size}")


def _unread(path: Path, why: str) -> CheckpointError:
    """The error for JSON that is no use: a file of its own, or the header of tensors."""
    if path.suffix != ".json":
        return _broken(path, why)
    return CheckpointError(f"{path}: {why}.", todo="Correct the file, or export it again.")


def _broken(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is not a whole safetensors checkpoint: {why}.",
        todo="Export or copy the file again.",
    )
