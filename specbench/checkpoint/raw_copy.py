"""safetensors written from the bytes of other safetensors: no torch, no dtype conversion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from specbench.checkpoint.headers import TensorEntry
from specbench.journal import replacing

CHUNK = 16 * 1024 * 1024


def write_tensors(
    path: Path, tensors: Mapping[str, TensorEntry], replaced: Mapping[str, np.ndarray]
) -> None:
    """Write one file with ``tensors`` under the given names, byte for byte.

    Args:
        path: the file; it appears whole or not at all.
        tensors: entries of checked headers by their new names.
        replaced: new int64 values for some of them, of the same shape.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, entry in sorted(tensors.items()):
        values = replaced.get(name)
        size = entry.end - entry.begin if values is None else values.nbytes
        header[name] = {
            "dtype": entry.dtype if values is None else "I64",
            "shape": list(entry.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, entry in sorted(tensors.items()):
            if name in replaced:
                file.write(replaced[name].astype("<i8").tobytes())
            else:
                _copy(entry, file)


def _copy(entry: TensorEntry, out: BinaryIO) -> None:
    with entry.path.open("rb") as file:
        file.seek(entry.begin)
        left = entry.end - entry.begin
        while left:
            part = file.read(min(left, CHUNK))
            if not part:
                raise OSError(f"{entry.path} became shorter while it was read")
            out.write(part)
            left -= len(part)
