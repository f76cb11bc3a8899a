"""Parts that decoder layers of all families are made of: linear maps, SwiGLU, attention by heads.

They are torch modules, so that torch's own parallel styles can shard them (``engine.parallel``).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from specbench.engine.models.cache_view import CacheView
from specbench.engine.models.layers import Norm
from specbench.modelspec import TargetSpec


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear map that holds ``weight`` [out, in] itself, no copy."""
    out_width, in_width = weight.shape
    made = nn.Linear(in_width, out_width, bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


def named_linear(tensors: Mapping[str, Tensor], name: str) -> nn.Linear:
    """The linear map ``name``, with its bias where the checkpoint has one."""
    return linear(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))


def in_pairs(values: Tensor, head_dim: int) -> Tensor:
    """Reorder rows of each head from half-split (i, i + D/2) to adjacent pairs (2i, 2i + 1)."""
    halves: Tensor = torch.unflatten(values, 0, (-1, 2, head_dim // 2))
    return halves.transpose(1, 2).flatten(0, 2)


class SwiGlu(nn.Module):
    """down(silu(gate x) · up x)."""

    def __init__(self, tensors: Mapping[str, Tensor], at: str) -> None:
        super().__init__()
        self.gate = named_linear(tensors, f"{at}.gate_proj")
        self.up = named_linear(tensors, f"{at}.up_proj")
        self.down = named_linear(tensors, f"{at}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        """[R, H] to [R, H]."""
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class HeadAttention(nn.Module):
    """Grouped-query attention, with what ``AttentionSpec`` adds to it."""

    def __init__(self, spec: TargetSpec, tensors: Mapping[str, Tensor], layer: int) -> None:
        super().__init__()
        at, dim = f"model.layers.{layer}.self_attn", spec.shape.head_dim
        self._layer, self._dim, self._window = layer, dim, spec.attention.window(layer)
        paired = {name: _paired(tensors, f"{at}.{name}_proj", dim) for name in "qk"}
        self.q, self.k = linear(*paired["q"]), linear(*paired["k"])
        self.v = named_linear(tensors, f"{at}.v_proj")
        self.out = named_linear(tensors, f"{at}.o_proj")
        self._norms: tuple[Norm, Norm] | None = None
        if spec.attention.head_norm:
            gains = [in_pairs(tensors[f"{at}.{name}_norm.weight"], dim) for name in "qk"]
            self._norms = Norm(gains[0], spec.shape.eps), Norm(gains[1], spec.shape.eps)
        self.sinks = tensors.get(f"{at}.sinks")

    def forward(self, x: Tensor, view: CacheView) -> Tensor:
        """[R, H] to [R, H]; keys and values of all rows are stored."""
        rows = x.shape[0]
        q, k, v = (project(x).view(rows, -1, self._dim) for project in (self.q, self.k, self.v))
        if self._norms is not None:
            q, k = self._norms[0](q), self._norms[1](k)
        view.store(self._layer, view.turn_keys(k), v)
        mixed = view.mix(self._layer, view.turn_queries(q), self._window, self.sinks)
        out: Tensor = self.out(mixed.flatten(1))
        return out


def _paired(tensors: Mapping[str, Tensor], name: str, dim: int) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a projection whose heads are rotated, in pair order."""
    bias = tensors.get(f"{name}.bias")
    return in_pairs(tensors[f"{name}.weight"], dim), None if bias is None else in_pairs(bias, dim)
