"""Latent attention (MLA) of a draft, in its plain form: keys and values are expanded per head.

A query or key head is (nope | rope). Rotation is on adjacent pairs, as checkpoints store them
(engine-spec 12.2); pairs of the nope part are turned by 1. Yarn's factor of rotations belongs to
the rope part, its factor of scores (mscale squared) to both. Values are padded to the width of
keys, so that one cache holds both.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specbench.engine.models.layers import Norm, Projection, Rope
from specbench.engine.models.rope import factors
from specbench.modelspec import DraftSpec, LatentShape, RopeSpec


class LatentRope(Rope):
    """Rotations of whole heads: 1 for the nope pairs, then those of the rope part."""

    def __init__(
        self,
        rope: RopeSpec,
        latent: LatentShape,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(rope, latent.rope, length, dtype, device)
        still = torch.ones(length, 1, latent.nope // 2, dtype=self.keys.dtype, device=device)
        self.keys = torch.cat([still, self.keys], -1)
        scored = factors(rope)[1]
        self.queries = (self.keys * (scored * (latent.nope + latent.rope) ** -0.5))[:, None]


class LatentAttention:
    """The projections of one layer around the scores."""

    def __init__(self, spec: DraftSpec, tensors: Mapping[str, Tensor], prefix: str) -> None:
        assert spec.latent is not None
        self._latent, self._heads, self._dim = spec.latent, spec.shape.heads, spec.shape.head_dim
        at, eps = f"{prefix}.self_attn", spec.shape.eps
        self._q_norm: Norm | None = None
        to_queries: tuple[str, ...] = ("q_proj",)
        if spec.latent.q_rank:
            self._q_norm = Norm(tensors[f"{at}.q_a_layernorm.weight"], eps)
            to_queries = ("q_b_proj", "q_a_proj")
        self._kv_norm = Norm(tensors[f"{at}.kv_a_layernorm.weight"], eps)
        names = (*to_queries, "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
        self.projections = tuple(Projection(tensors[f"{at}.{name}.weight"]) for name in names)

    def qkv(self, x: Tensor, out: Tensor) -> None:
        """Queries, keys and padded values of rows ``x`` [R, in], into ``out`` [R, 3·heads·D]."""
        latent, rows = self._latent, x.shape[0]
        low_q = x if self._q_norm is None else self._q_norm(self.projections[1](x))
        q = self.projections[0](low_q)
        kv_a, kv_b = self.projections[-3:-1]
        low, turned = torch.split(kv_a(x), [latent.kv_rank, latent.rope], -1)
        expanded = kv_b(self._kv_norm(low)).view(rows, self._heads, -1)
        still, v = torch.split(expanded, [latent.nope, latent.value], -1)
        k = torch.cat([still, turned[:, None].expand(-1, self._heads, -1)], -1)
        v = F.pad(v, (0, self._dim - latent.value))
        torch.cat([q, k.flatten(1), v.flatten(1)], 1, out=out)

    def out(self, mixed: Tensor) -> Tensor:
        """The output projection of mixed values [R, heads·D], without their padding."""
        heads = mixed.view(mixed.shape[0], self._heads, self._dim)
        return self.projections[-1](heads[..., : self._latent.value].flatten(1))
