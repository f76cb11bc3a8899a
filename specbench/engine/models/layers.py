"""The pieces of a Llama layer, arranged so that a step costs few calls and few copies.

Three rearrangements happen once, at load, and leave the mathematics alone:

- norm weights are folded into the projection behind them, where that loses nothing;
- rows of the query and key projections are reordered from Llama's half-split to adjacent pairs,
  so that a rotation is one complex multiplication; scores do not change, since q and k are
  reordered alike;
- query, key and value, and gate and up, are one projection each.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (the name that every reader of torch code expects)
from torch import Tensor

from specbench.engine.models.rope import factors, frequencies
from specbench.modelspec import LayerShape, RopeSpec

WIDE = (torch.float32, torch.float64)
ALWAYS, NEVER = 0, sys.maxsize
PACKED_FROM = 2  # rows from which a packed projection is used; see Projection
_packed_product = torch.ops.quantized.linear_dynamic_fp16


def gain_from(dtype: torch.dtype, *, packed: bool) -> int:
    """Rows from which norms multiply by their gain themselves, for weights of this kind.

    Folding is done in float32 and wider only; packed panels are never folded into.
    """
    if dtype not in WIDE:
        return ALWAYS
    return PACKED_FROM if packed else NEVER


def can_pack(tensors: Mapping[str, Tensor]) -> bool:
    """True when the matrices can be kept as float16 without changing any: CPU, float32, FBGEMM."""
    matrices = [t for t in tensors.values() if t.dim() == 2]
    return torch.backends.quantized.engine in ("fbgemm", "x86") and all(
        t.device.type == "cpu" and t.dtype == torch.float32 and torch.equal(t.half().float(), t)
        for t in matrices
    )


class Table:
    """The rows of an embedding [V, H] by token id."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, tokens: Tensor) -> Tensor:
        """Rows [R, H] of ids [R]."""
        return self.weight.index_select(0, tokens)


class Norm:
    """RMSNorm over the last dimension; its gain can be left to the matrix behind it.

    ``x / sqrt(mean(x²) + eps)`` is ``sqrt(H) · x / hypot(‖x‖, sqrt(H · eps))``: three small calls
    on a CPU, less than half the time of ``F.rms_norm``, which is composed of more. ``gain`` is the
    weight times sqrt(H); the norm multiplies by it from ``gain_from`` rows on, and below that the
    projection behind must hold it (``fold``).
    """

    __slots__ = ("_composed", "_eps", "_floor", "_gain", "_gain_from", "_weight")

    def __init__(self, weight: Tensor, eps: float, *, gain_from: int = ALWAYS) -> None:
        width = weight.shape[0]
        self._composed = weight.device.type == "cpu" and weight.dtype in WIDE
        self._gain = weight * width**0.5 if self._composed else weight
        self._gain_from, self._weight, self._eps = gain_from, weight, eps
        self._floor = torch.tensor((width * eps) ** 0.5, dtype=weight.dtype, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """The normed ``x``; without its gain when that is folded for so few rows."""
        own_gain = x.shape[0] >= self._gain_from
        if not self._composed:
            weight = self._weight if own_gain else None
            return F.rms_norm(x, (x.shape[-1],), weight, self._eps)
        normed = x / torch.hypot(torch.linalg.vector_norm(x, 2, -1, True), self._floor)
        return normed.mul_(self._gain) if own_gain else normed

    def fold(self, projection: Tensor) -> Tensor:
        """``projection`` [out, in] as it must be behind this norm, with the gain if left to it."""
        return projection if self._gain_from == ALWAYS else projection * self._gain


class Projection:
    """``x Wᵀ`` for few rows; W is kept in whichever form is read fastest.

    On a CPU a matrix that grows its input is read faster transposed ([in, out], contiguous), one
    that shrinks it as stored. ``packed`` keeps weights that are float16 in the file as float16,
    in FBGEMM's panels, for ``PACKED_FROM`` rows and more: half the bytes, sums in float32, and no
    packing per call, which costs a plain product of 4 to 8 rows more than the product itself. One
    row is read faster from the float32 matrix. Measured with benchmarks/engine.py.

    The gain of ``norm`` in front is folded into the matrix as the norm says; never into the
    panels, so that these stay exact.
    """

    __slots__ = ("matrix", "panels")

    def __init__(self, weight: Tensor, *, norm: Norm | None = None, packed: bool = False) -> None:
        out_width, in_width = weight.shape
        self.panels = None
        if packed:
            self.panels = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)
        single = weight if norm is None else norm.fold(weight)
        grows = out_width >= in_width and weight.device.type == "cpu"
        self.matrix = single.t().contiguous() if grows else single.contiguous().t()

    def into(self, x: Tensor, out: Tensor) -> None:
        """Write the product [rows, out] to ``out``."""
        if self.panels is not None and x.shape[0] >= PACKED_FROM:
            out.copy_(_packed_product(x, self.panels))
        else:
            torch.mm(x, self.matrix, out=out)

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """Add the product to ``total`` in place."""
        if self.panels is not None and x.shape[0] >= PACKED_FROM:
            total.add_(_packed_product(x, self.panels))
        else:
            total.addmm_(x, self.matrix)

    def plus(self, base: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """``base`` and the product, as a new tensor or in ``out``."""
        if self.panels is not None and x.shape[0] >= PACKED_FROM:
            return torch.add(base, _packed_product(x, self.panels), out=out)
        return torch.addmm(base, x, self.matrix, out=out)

    def __call__(self, x: Tensor) -> Tensor:
        """The product as a new tensor."""
        if self.panels is not None and x.shape[0] >= PACKED_FROM:
            product: Tensor = _packed_product(x, self.panels)
            return product
        return torch.mm(x, self.matrix)

    def read_bytes(self, rows: int) -> int:
        """Bytes of weights that a product of ``rows`` rows reads."""
        half = self.panels is not None and rows >= PACKED_FROM
        return self.matrix.numel() * (2 if half else self.matrix.element_size())


def pair_rows(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder each head's rows from half-split (i, i + D/2) to adjacent pairs (2i, 2i + 1)."""
    rows, width = weight.shape
    halves = weight.view(rows // head_dim, 2, head_dim // 2, width)
    return halves.transpose(1, 2).reshape(rows, width)


class Rope:
    """Rotations as complex numbers, shaped to broadcast over heads.

    ``keys`` [length, 1, d/2] and ``queries`` [length, 1, 1, d/2] of the d values of a head that are
    rotated, the latter with the factor of scores in: 1/sqrt(D), D the whole head.
    """

    def __init__(
        self, rope: RopeSpec, head_dim: int, length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        angles = torch.outer(
            torch.arange(length, dtype=torch.float64, device=device),
            frequencies(rope, head_dim).to(device),
        )
        turned, scored = factors(rope)
        exact = turned * torch.complex(angles.cos(), angles.sin())
        kind = torch.complex128 if dtype == torch.float64 else torch.complex64
        self.length = length
        self.keys = exact.to(kind)[:, None]
        self.queries = (exact * (scored * head_dim**-0.5)).to(kind)[:, None, None]


@dataclass(slots=True, kw_only=True)
class Block:
    """The weights of one decoder layer, fused as the module says."""

    input_norm: Norm
    qkv: Projection
    out: Projection
    post_norm: Norm
    gate_up: Projection
    down: Projection

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All of them, in the order of use."""
        return self.qkv, self.out, self.gate_up, self.down

    def read_bytes(self, rows: int) -> int:
        """Bytes of weights that a forward of ``rows`` rows reads."""
        return sum(projection.read_bytes(rows) for projection in self.projections)


class Scratch:
    """Static working memory of a layer for B lanes of T rows, and every view of it that is needed.

    A view costs as much as a small operation, so each is made once; the addresses never change,
    which is what a captured graph needs.
    """

    def __init__(
        self, shape: LayerShape, batch: int, rows: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        total, dim = batch * rows, shape.head_dim
        kv, group = shape.kv_heads, shape.heads // shape.kv_heads
        wide_q, wide_k = shape.heads * dim, kv * dim

        def new(*size: int) -> Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        self.rows, self.paired = rows, dtype in WIDE
        self.qkv = new(total, wide_q + 2 * wide_k)
        self.q_in = self._pairs(self.qkv[:, :wide_q].view(batch, rows, kv, group, dim))
        self.k_in = self._pairs(self.qkv[:, wide_q : wide_q + wide_k].view(total, kv, dim))
        self.v_in = self.qkv[:, wide_q + wide_k :].view(total, kv, dim)
        queries = new(batch, kv, group, rows, dim)
        self.q = queries.view(batch * kv, group * rows, dim)
        self.q_out = self._pairs(queries.permute(0, 3, 1, 2, 4))
        self.k = new(total, kv, dim)
        self.k_out = self._pairs(self.k)
        heads = new(batch, kv, group, rows, dim)
        self.heads = heads.view(batch * kv, group * rows, dim)
        self.heads_by_row = heads.permute(0, 3, 1, 2, 4)
        self.merged = new(total, wide_q) if rows > 1 else heads.view(total, wide_q)
        self.merged_heads = self.merged.view(batch, rows, kv, group, dim)
        self.score_shape = (batch, kv * group, rows, -1)
        self.gate_up = new(total, 2 * shape.inner)
        self.gate, self.up = self.gate_up[:, : shape.inner], self.gate_up[:, shape.inner :]
        self.active = new(total, shape.inner)

    def _pairs(self, x: Tensor) -> Tensor:
        """Adjacent pairs of the last dimension as complex numbers, where the dtype has them."""
        if not self.paired:
            return x
        return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))


class ScratchCache:
    """Working memory by (lanes, rows). Decode shapes are few and come back, so they are kept;
    prompt chunks have any length, so the memory of the last one alone is kept."""

    KEPT_ROWS = 64

    def __init__(self, shape: LayerShape, dtype: torch.dtype, device: torch.device) -> None:
        self._shape, self._dtype, self._device = shape, dtype, device
        self._kept: dict[tuple[int, int], Scratch] = {}
        self._large: dict[tuple[int, int], Scratch] = {}

    def __call__(self, batch: int, rows: int) -> Scratch:
        """The memory for ``batch`` lanes of ``rows`` rows."""
        key = (batch, rows)
        kept = self._kept if rows <= self.KEPT_ROWS else self._large
        if key not in kept:
            if kept is self._large:  # a small one comes between the writing and reading of a large
                self._large.clear()
            kept[key] = Scratch(self._shape, batch, rows, self._dtype, self._device)
        return kept[key]


def rotate(x: Tensor, turn: Tensor, out: Tensor) -> None:
    """Rotate the pairs of ``x`` by ``turn`` into ``out``; half precision goes through float32."""
    if x.is_complex():
        torch.mul(x, turn, out=out)
        return
    pairs = torch.view_as_complex(x.float().contiguous().view(*x.shape[:-1], -1, 2))
    out.copy_(torch.view_as_real(pairs * turn).flatten(-2))


def feed_forward(block: Block, x: Tensor, scratch: Scratch) -> None:
    """SwiGLU on the normed ``x`` [R, H], added to ``x`` in place."""
    block.gate_up.into(block.post_norm(x), scratch.gate_up)
    F.silu(scratch.gate, inplace=True)
    torch.mul(scratch.gate, scratch.up, out=scratch.active)
    block.down.add_to(x, scratch.active)
