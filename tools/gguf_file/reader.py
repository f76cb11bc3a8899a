"""The table of contents of a GGUF file: metadata and where each tensor lies.

Layout (the GGUF specification of the ggml project): magic, version, two counts, key-value pairs,
tensor infos, then the data, each tensor at a multiple of ``general.alignment``. The file is not
trusted: counts and lengths are held against its size before anything is made of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from specbench.errors import CheckpointError
from tools.gguf_file.blocks import FORMATS, Array, dequantised

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, LIST = 8, 9
MOST_DIMS = 4
MAX_HEADER_BYTES = 256 * 1024 * 1024
# Types of metadata values by their code; 7 is a boolean of one byte.
SCALARS = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?"))) | {
    10: "<Q",
    11: "<q",
    12: "<d",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: its shape as torch has it (rows first), block format, first byte and size."""

    name: str
    shape: tuple[int, ...]
    kind: int
    begin: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """Metadata and tensors of a file whose claims were checked; no weights are loaded."""

    path: Path
    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def load(self, name: str) -> Array:
        """The tensor in float32, as ``shape`` says.

        Raises:
            CheckpointError: it is missing, or the file became shorter.
        """
        entry = self.tensors.get(name)
        if entry is None:
            raise CheckpointError(f"{self.path} has no tensor {name!r}.")
        with self.path.open("rb") as file:
            file.seek(entry.begin)
            data = file.read(entry.size)
        if len(data) != entry.size:
            raise CheckpointError(f"{self.path} became shorter while it was read.")
        return dequantised(np.frombuffer(data, np.uint8), entry.kind).reshape(entry.shape)

    def value(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A metadata value of a kind.

        Raises:
            CheckpointError: it is missing and has no default, or is of another kind.
        """
        found = self.values.get(name, default)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if found is None or type(found) not in kinds:
            told = "missing" if found is None else f"a {type(found).__name__}"
            wanted = " or ".join(k.__name__ for k in kinds)
            raise CheckpointError(f"{self.path}: {name} is {told}.", expected=f"A {wanted}.")
        return found


def read_gguf(path: Path) -> GgufFile:
    """Read the header of ``path``.

    Raises:
        CheckpointError: no GGUF file of a known version, cut short, or tensors that do not fit.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = _Cursor(path, file.read(MAX_HEADER_BYTES))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    if head.take(4) != MAGIC:
        head.fail("it does not begin with the letters GGUF")
    if (version := head.number("<I")) not in VERSIONS:
        head.fail(f"its version is {version}, not 2 or 3")
    n_tensors, n_values = head.number("<Q"), head.number("<Q")
    values: dict[str, Any] = {}
    for _ in range(n_values):
        name = head.text()
        if name in values:
            head.fail(f"key {name!r} appears twice")
        values[name] = head.any(head.number("<I"))
    infos = [_info(head) for _ in range(n_tensors)]
    align = values.get("general.alignment", 32)
    if type(align) is not int or not 1 <= align <= 1 << 20:
        head.fail(f"its alignment is {align!r}")
    start = -(-head.at // align) * align
    tensors: dict[str, Tensor] = {}
    for name, shape, kind, offset in infos:
        if name in tensors:
            head.fail(f"tensor {name!r} appears twice")
        tensors[name] = _placed(head, name, shape, kind, start + offset, size)
    return GgufFile(path=path, values=values, tensors=tensors)


def _info(head: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, block format and offset; the file names the fastest dimension first."""
    name, dims = head.text(), head.number("<I")
    if not 1 <= dims <= MOST_DIMS:
        head.fail(f"tensor {name[:100]!r} has {dims} dimensions")
    shape = tuple(head.number("<Q") for _ in range(dims))[::-1]
    return name, shape, head.number("<I"), head.number("<Q")


def _placed(
    head: _Cursor, name: str, shape: tuple[int, ...], kind: int, begin: int, size: int
) -> Tensor:
    if kind not in FORMATS:
        known = ", ".join(block.name for block in FORMATS.values())
        raise CheckpointError(
            f"{head.path}: tensor {name!r} is stored in ggml format {kind}.",
            expected=f"One of {known}.",
            todo="Take a file in one of these formats.",
        )
    block = FORMATS[kind]
    if shape[-1] == 0 or shape[-1] % block.values:
        head.fail(f"tensor {name!r} of shape {list(shape)} is no whole number of blocks")
    length = math.prod(shape) // block.values * block.size
    if begin + length > size:
        head.fail(f"tensor {name!r} ends at byte {begin + length} of {size}")
    return Tensor(name=name, shape=shape, kind=kind, begin=begin, size=length)


class _Cursor:
    """Reads the header front to back; nothing is taken beyond its end."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self._data, self.at = path, data, 0

    def fail(self, why: str) -> NoReturn:
        """Refuse the file."""
        raise CheckpointError(
            f"{self.path} is not a whole GGUF file: {why}.", todo="Download or copy it again."
        )

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        end = self.at + count
        if end > len(self._data):
            self.fail(f"its header is cut off at byte {len(self._data)}")
        piece, self.at = self._data[self.at : end], end
        return piece

    def number(self, form: str) -> Any:
        """The next number in a ``struct`` form."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        """The next string."""
        raw = self.take(self.number("<Q"))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.fail(f"the text that ends at byte {self.at} is not UTF-8")

    def any(self, kind: int, depth: int = 0) -> Any:
        """A value of a type code; lists of lists are not in use."""
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == LIST and depth == 0:
            inner, count = self.number("<I"), self.number("<Q")
            if count > len(self._data) - self.at:  # a value has a byte at least
                self.fail(f"a list claims {count} values")
            return [self.any(inner, 1) for _ in range(count)]
        return self.fail(f"a value has type code {kind}")
