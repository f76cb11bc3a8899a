"""Write small GGUF files for tests: headers as the specification has them, three formats."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CODES = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}
ALIGN = 32


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def typed(value: Any) -> bytes:
    """Type code and value."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        parts = [typed(one) for one in value]
        inner = parts[0][:4] if parts else struct.pack("<I", 4)
        return (
            struct.pack("<I", 9)
            + inner
            + struct.pack("<Q", len(parts))
            + b"".join(part[4:] for part in parts)
        )
    code, form = CODES[type(value)]
    return struct.pack("<I", code) + struct.pack(form, value)


def stored(values: npt.NDArray[np.float32], kind: int) -> bytes:
    """Values in F32 (0), F16 (1) or Q8_0 (8)."""
    if kind == 0:
        return values.astype("<f4").tobytes()
    if kind == 1:
        return values.astype("<f2").tobytes()
    assert kind == 8
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype("<f2")
    whole = np.round(blocks / np.maximum(scale.astype(np.float32), 1e-8)).astype(np.int8)
    return b"".join(s.tobytes() + q.tobytes() for s, q in zip(scale, whole, strict=True))


def write_gguf(
    path: Path,
    values: Mapping[str, Any],
    tensors: Mapping[str, tuple[npt.NDArray[np.float32], int]],
    *,
    version: int = 3,
) -> None:
    """``tensors`` are arrays with rows first, each with its ggml type code."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    head += b"".join(text(key) + typed(value) for key, value in values.items())
    data, infos = b"", b""
    for name, (array, kind) in tensors.items():
        infos += text(name) + struct.pack("<I", array.ndim)
        infos += b"".join(struct.pack("<Q", size) for size in array.shape[::-1])
        infos += struct.pack("<IQ", kind, len(data))
        raw = stored(array, kind)
        data += raw + b"\0" * (-len(raw) % ALIGN)
    head += infos
    path.write_bytes(head + b"\0" * (-len(head) % ALIGN) + data)
