"""ggml's storage formats as numpy: plain floats, and blocks of 32 values with their own scale.

A block holds a float16 scale d (and, in the ``_1`` formats, a float16 minimum m), then 32 small
integers q: the values are d·(q - 8) for Q4_0, d·q + m for Q4_1 and d·q for Q8_0. The low halves of
16 bytes are values 0..15 of a block, the high halves values 16..31 (ggml-quants.c of the ggml
project; checked against the ``gguf`` package's own dequantize).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A format: values and bytes of one block, and float32 values [n, values] of its bytes."""

    name: str
    values: int
    size: int
    read: Callable[[Bytes], Array]


def dequantised(data: Bytes, kind: int) -> Array:
    """All values of whole blocks of format ``kind``, flat."""
    block = FORMATS[kind]
    return block.read(data.reshape(-1, block.size)).reshape(-1)


def _floats(dtype: Any) -> Callable[[Bytes], Array]:
    return lambda blocks: np.ascontiguousarray(blocks).view(dtype).astype(np.float32)


def _bf16(blocks: Bytes) -> Array:
    return (np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _half(blocks: Bytes, at: int) -> Array:
    """The float16 at byte ``at`` of every block [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Array:
    """32 values of 0..15 from 16 bytes a block."""
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


def _q4_0(blocks: Bytes) -> Array:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]) - 8)


def _q4_1(blocks: Bytes) -> Array:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Array:
    values = np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)
    return _half(blocks, 0) * values


# By ggml's type codes.
FORMATS = {
    0: Block(name="F32", values=1, size=4, read=_floats("<f4")),
    1: Block(name="F16", values=1, size=2, read=_floats("<f2")),
    2: Block(name="Q4_0", values=32, size=18, read=_q4_0),
    3: Block(name="Q4_1", values=32, size=20, read=_q4_1),
    8: Block(name="Q8_0", values=32, size=34, read=_q8_0),
    30: Block(name="BF16", values=1, size=2, read=_bf16),
}
