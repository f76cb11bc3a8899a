"""Latent attention with the latent itself cached (DeepSeek-V2, section 2.1; engine-spec 12.2).

A key is (k_nope | k_rope) with k_nope = W_k c, a value W_v c, c the latent of a token. Therefore
q · k = (W_kᵀ q_nope) · c + q_rope · k_rope, and the mix of values is W_v applied to the mix of
latents: one "key head" (c | k_rope) and one "value" c serve all heads. A token takes
2·kv_rank + rope numbers per layer instead of heads·(nope + rope + value): for DeepSeek-V3
1,088 instead of 40,960. The latent lies in both halves of the pool; holding it once would take a
pool of its own kind.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from specbench.engine.models.cache_view import CacheView
from specbench.engine.models.layers import Norm
from specbench.engine.models.parts import named_linear
from specbench.modelspec import TargetSpec

INNER_EPS = 1e-6  # of both inner norms, whatever rms_norm_eps says (Hugging Face)


class LatentAttention(nn.Module):
    """Queries through a low rank or directly, keys and values through the cached latent."""

    def __init__(self, spec: TargetSpec, tensors: Mapping[str, Tensor], layer: int) -> None:
        super().__init__()
        latent = spec.attention.latent
        assert latent is not None
        at = f"model.layers.{layer}.self_attn"
        self._layer, self._latent, self._dim = layer, latent, spec.shape.head_dim
        scaling = spec.rope.scaling
        self._scale = self._dim**-0.5 * (scaling.score_factor if scaling else 1.0)
        self.q_down: nn.Linear | None = None
        if latent.q_rank:
            self.q_down = named_linear(tensors, f"{at}.q_a_proj")
            self._q_norm = Norm(tensors[f"{at}.q_a_layernorm.weight"], INNER_EPS)
        self.q = named_linear(tensors, f"{at}.q_b_proj" if latent.q_rank else f"{at}.q_proj")
        self.down = named_linear(tensors, f"{at}.kv_a_proj_with_mqa")
        self._norm = Norm(tensors[f"{at}.kv_a_layernorm.weight"], INNER_EPS)
        heads = torch.unflatten(tensors[f"{at}.kv_b_proj.weight"], 0, (spec.shape.heads, -1))
        to_key, to_value = torch.split(heads, [latent.nope, latent.value], 1)
        self.to_key = nn.Parameter(to_key.contiguous(), requires_grad=False)  # [heads, nope, rank]
        self.to_value = nn.Parameter(to_value.contiguous(), requires_grad=False)
        self.out = named_linear(tensors, f"{at}.o_proj")

    def forward(self, x: Tensor, view: CacheView) -> Tensor:
        """[R, H] to [R, H]; the latent and the rotated part of all rows are stored."""
        latent = self._latent
        low = x if self.q_down is None else self._q_norm(self.q_down(x))
        q = self.q(low).view(x.shape[0], -1, self._dim)
        still, turned = q.split([latent.nope, latent.rope], -1)
        c, k_turned = self.down(x).split([latent.kv_rank, latent.rope], -1)
        c = self._norm(c)[:, None]
        view.store(self._layer, torch.cat([c, view.turn_keys(k_turned[:, None])], -1), c)
        # [heads, R, nope] x [heads, nope, rank]
        lifted = torch.bmm(still.transpose(0, 1) * self._scale, self.to_key).transpose(0, 1)
        mixed = view.mix(self._layer, torch.cat([lifted, view.turn_queries(turned)], -1))
        values = torch.bmm(mixed.transpose(0, 1), self.to_value.transpose(1, 2)).transpose(0, 1)
        out: Tensor = self.out(values.flatten(1))
        return out
