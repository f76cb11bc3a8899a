"""The structures of ``forward.cpp``, filled from tensors.

Every object here keeps the tensors that its structure points into, so that none is freed under it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_double, c_int64, c_void_p

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specbench.engine.models.base import Span
from specbench.engine.models.pages import huge_region
from specbench.modelspec import LayerShape

WIDE = 8  # floats of a register: every width but the vocabulary must be a multiple
PANEL = 16
LINE = 64  # bytes of a cache line
FLOAT_BYTES = 4
STORAGE = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


class CMatrix(ctypes.Structure):
    """A weight [out, in] in panels."""

    _fields_ = (("panels", c_void_p), *((name, c_int64) for name in ("out", "in_", "storage")))


class CLayer(ctypes.Structure):
    """The weights of one layer."""

    _fields_ = (
        ("input_gain", c_void_p),
        ("post_gain", c_void_p),
        *((name, CMatrix) for name in ("qkv", "out", "gate_up", "down")),
    )


class CModel(ctypes.Structure):
    """All of a model: sizes, layers, and what stands before and behind them."""

    _fields_ = (
        *(
            (name, c_int64)
            for name in ("hidden", "inner", "heads", "kv_heads", "head_dim", "layers")
        ),
        ("eps", c_double),
        ("layer", c_void_p),
        ("embedding", c_void_p),
        ("final_gain", c_void_p),
        ("head", CMatrix),
    )


class CRows(ctypes.Structure):
    """Where the rows of a forward stand; see ``forward.cpp``."""

    _fields_ = (
        *((name, c_int64) for name in ("lanes", "rows")),
        *((name, c_void_p) for name in ("turn_q", "turn_k")),
        *((name, c_int64) for name in ("turn_q_stride", "turn_k_stride")),
        *((name, c_void_p) for name in ("keys", "values")),
        *((name, c_int64) for name in ("layer_stride", "head_stride")),
        ("places", c_void_p),
        *((name, c_int64) for name in ("first", "seen")),
        *((name, c_void_p) for name in ("lane_seen", "mask")),
        *((name, c_int64) for name in ("mask_lane", "mask_row")),
        *((name, c_void_p) for name in ("starts", "sight")),
        ("sight_lane", c_int64),
    )


class CHabits(ctypes.Structure):
    """How a draft hands on what it computes."""

    _fields_ = (("normed_residual", c_int64), ("normed_state", c_int64))


class Weight:
    """A matrix [out, in] as panels [out / 16, in, 16], in 16 bits where that loses nothing."""

    __slots__ = ("panels", "shape")

    def __init__(self, weight: Tensor) -> None:
        self.shape = out, in_ = (weight.shape[0], weight.shape[1])
        padded = F.pad(narrowest(weight), (0, 0, 0, -out % PANEL))
        self.panels = padded.view(-1, PANEL, in_).transpose(1, 2).contiguous()

    @property
    def c(self) -> CMatrix:
        """The structure that points to the panels, where they lie now."""
        return CMatrix(self.panels.data_ptr(), *self.shape, STORAGE[self.panels.dtype])

    @property
    def read_bytes(self) -> int:
        """Bytes that a product reads."""
        return self.panels.numel() * self.panels.element_size()


def lay_out(weights: Sequence[Weight]) -> None:
    """Put weights after one another on huge pages, where the system has such.

    A step reads them in this order: one stream, few page walks (9 to 15 % of a step's time).
    """
    sizes = [-(-weight.read_bytes // LINE) * LINE for weight in weights]
    memory = huge_region(sum(sizes))
    if memory is None:
        return
    for weight, size in zip(weights, sizes, strict=True):
        place = memory[: weight.read_bytes].view(weight.panels.dtype)
        weight.panels = place.view(weight.panels.shape).copy_(weight.panels)
        memory = memory[size:]


def narrowest(weight: Tensor) -> Tensor:
    """``weight`` as float16 or bfloat16 where every value stays what it is, else as float32."""
    for dtype in (torch.float16, torch.bfloat16):
        narrow = weight.to(dtype)
        if torch.equal(narrow.float(), weight):
            return narrow
    return weight


class Room:
    """Working memory of forwards, grown when more is needed."""

    BLOCK = 256  # columns are counted in such blocks

    def __init__(self, library: ctypes.CDLL, model: CModel) -> None:
        self._library, self._model = library, model
        self._library.work_floats.restype = c_int64
        self._buffer = torch.empty(0)
        self._enough: set[tuple[int, int]] = set()

    def __call__(self, rows: int, columns: int) -> c_void_p:
        """Memory for ``rows`` rows that look at up to ``columns`` columns."""
        blocks = columns // self.BLOCK + 1
        if (rows, blocks) not in self._enough:
            columns = blocks * self.BLOCK
            need = self._library.work_floats(byref(self._model), c_int64(rows), c_int64(columns))
            if self._buffer.numel() < need:
                self._buffer = torch.empty(need)
            self._enough.add((rows, blocks))
        return at(self._buffer)


def at(tensor: Tensor | None) -> c_void_p:
    """The address of a tensor's first element; null for None."""
    return c_void_p(None if tensor is None else tensor.data_ptr())


def fits(shape: LayerShape) -> bool:
    """True when every width is a multiple of a register."""
    return all(width % WIDE == 0 for width in (shape.hidden, shape.head_dim, shape.inner))


def c_rows(span: Span, lanes: int, rows: int, head_dim: int) -> CRows:
    """The places of ``span`` for ``rows`` rows of each of ``lanes`` lanes, in float32.

    ``span.slots`` count from the first lane's first slot, where ``span.keys`` begins as well.
    """
    keys, mask, total = span.keys[0], span.mask, lanes * rows
    apart = span.keys[1].data_ptr() - keys.data_ptr() if len(span.keys) > 1 else 0
    return CRows(
        lanes=lanes,
        rows=rows,
        turn_q=span.turn_q.data_ptr(),
        turn_k=span.turn_k.data_ptr(),
        turn_q_stride=_stride(span.turn_q, total, head_dim),
        turn_k_stride=_stride(span.turn_k, total, head_dim),
        keys=keys.data_ptr(),
        values=span.values[0].data_ptr(),
        layer_stride=apart // FLOAT_BYTES,
        head_stride=keys.stride(0),
        places=None if span.slots is None else span.slots.data_ptr(),
        first=keys.shape[-1] - total,
        seen=keys.shape[-1],
        mask=None if mask is None else mask.data_ptr(),
        mask_lane=0 if mask is None or mask.dim() < 4 else mask.stride(0),
        mask_row=0 if mask is None else mask.stride(-2),
    )


def _stride(turn: Tensor, rows: int, head_dim: int) -> int:
    """Floats from one row's rotation to the next; 0 when one serves all of several rows."""
    return head_dim if turn.numel() * 2 >= rows * head_dim else 0
