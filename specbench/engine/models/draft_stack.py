"""Drafts beyond the single Llama layer: several layers, latent attention, the last hidden state,
biases and normed heads.

Every row goes through every layer, so ``remember`` does all of it and ``guess`` is norm and head;
the drafter calls both in that order for every kind of row. Rules: engine-spec 2.1, 1.5, 1.6.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specbench.engine.models.attention import attend, store
from specbench.engine.models.base import RowKind, Span
from specbench.engine.models.draft_latent import LatentAttention
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Norm, Projection, Scratch, ScratchCache, Table
from specbench.engine.models.llama import fused_qkv
from specbench.engine.models.parts import in_pairs
from specbench.errors import EngineError
from specbench.modelspec import DraftSpec


class HeadAttention:
    """The projections of grouped-query attention around the scores, with biases and head norms."""

    def __init__(self, spec: DraftSpec, tensors: Mapping[str, Tensor], prefix: str) -> None:
        at, shape = f"{prefix}.self_attn", spec.shape
        qkv = fused_qkv(tensors, prefix, shape.head_dim)
        self.projections = (Projection(qkv), Projection(tensors[f"{at}.o_proj.weight"]))
        self._bias = _fused_bias(tensors, at, shape.head_dim) if spec.qkv_bias else None
        self._out_bias = tensors[f"{at}.o_proj.bias"] if spec.out_bias else None
        self._dim = shape.head_dim
        self._norms: tuple[tuple[Norm, int], ...] = ()
        if spec.head_norm:
            gains = (in_pairs(tensors[f"{at}.{name}_norm.weight"], shape.head_dim) for name in "qk")
            norms = [Norm(gain, shape.eps) for gain in gains]
            self._norms = ((norms[0], shape.heads), (norms[1], shape.kv_heads))

    def qkv(self, x: Tensor, out: Tensor) -> None:
        """Queries, keys and values of rows ``x`` into ``out``; norms come before rotation."""
        self.projections[0].into(x, out)
        if self._bias is not None:
            out.add_(self._bias)
        first = 0
        for norm, heads in self._norms:
            width = heads * self._dim
            part = out[:, first : first + width].view(out.shape[0], heads, self._dim)
            part.copy_(norm(part))
            first += width

    def out(self, mixed: Tensor) -> Tensor:
        """The output projection."""
        if self._out_bias is not None:
            return self.projections[1].plus(self._out_bias, mixed)
        return self.projections[1](mixed)


def _fused_bias(tensors: Mapping[str, Tensor], at: str, head_dim: int) -> Tensor:
    """Biases of q, k and v in the order of ``fused_qkv``."""
    q, k, v = (tensors[f"{at}.{name}_proj.bias"] for name in "qkv")
    return torch.cat([in_pairs(q, head_dim), in_pairs(k, head_dim), v])


class DraftLayer:
    """One layer's attention, norms and SwiGLU; ``norm`` is the one in front of attention."""

    def __init__(
        self, spec: DraftSpec, tensors: Mapping[str, Tensor], prefix: str, norm: str
    ) -> None:
        eps = spec.shape.eps
        kind = HeadAttention if spec.latent is None else LatentAttention
        self.attention: HeadAttention | LatentAttention = kind(spec, tensors, prefix)
        self.norm = Norm(tensors[f"{prefix}.{norm}.weight"], eps)
        self.post_norm = Norm(tensors[f"{prefix}.post_attention_layernorm.weight"], eps)
        self.mlp = tuple(
            Projection(tensors[f"{prefix}.mlp.{name}_proj.weight"])
            for name in ("gate", "up", "down")
        )

    def feed_forward(self, x: Tensor) -> Tensor:
        """``x`` and SwiGLU of the normed ``x`` [R, H]."""
        gate, up, down = self.mlp
        normed = self.post_norm(x)
        return down.plus(x, F.silu(gate(normed)) * up(normed))

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every matrix, in the order of use."""
        return (*self.attention.projections, *self.mlp)


class StackedDraft(Eagle3Draft):
    """The same calls as the classic draft; nothing of its fused weights is kept."""

    def __init__(
        self,
        spec: DraftSpec,
        tensors: Mapping[str, Tensor],
        embedding: Tensor,
        target_norm: Norm | None = None,
    ) -> None:
        """``target_norm`` is the target's final norm, for drafts on its last normed state."""
        self.spec, self.dtype, self.device = spec, embedding.dtype, embedding.device
        eps = spec.shape.eps
        self.embed = Table(embedding)
        self._token_norm = Norm(tensors["midlayer.input_layernorm.weight"], eps)
        upper = [DraftLayer(spec, tensors, f"layers.{i}", spec.upper_norm)
                 for i in range(1, spec.n_layers)]  # fmt: skip
        self.layers = (DraftLayer(spec, tensors, "midlayer", "hidden_norm"), *upper)
        self._target_norm = target_norm
        self._reducer = Projection(tensors["fc.weight"]) if spec.has_fc else None
        self._fc_bias = tensors["fc.bias"] if spec.fc_bias else None
        self._input_norm = Norm(tensors["input_norm.weight"], eps) if spec.norm_before_fc else None
        self._fc_norms = tuple(
            Norm(tensors[f"fc_norm.{j}.weight"], eps)
            for j in range(spec.n_features if spec.fc_norm else 0)
        )
        self._norm = Norm(tensors["norm.weight"], eps)
        self.head = Projection(tensors.get("lm_head.weight", embedding))
        offsets = tensors.get("d2t")
        ids = torch.arange(spec.draft_vocab, device=self.device)
        self.target_ids = ids if offsets is None else ids + offsets.to(ids)
        self._scratch = ScratchCache(spec.shape, self.dtype, self.device)

    @property
    def projections(self) -> list[Projection]:
        """Every matrix that a step reads."""
        layers = [p for layer in self.layers for p in layer.projections]
        return [*([self._reducer] if self._reducer else []), *layers, self.head]

    def read_bytes(self, rows: int, *, extend: bool = False) -> int:
        """Bytes of weights that a decode of ``rows`` rows reads; an extend also reads fc."""
        matrices = self.projections[int(self._reducer is not None and not extend) :]
        return sum(matrix.read_bytes(rows) for matrix in matrices)

    def hidden(self, vectors: Tensor, kind: RowKind) -> Tensor:
        """Row states [R, H] from target features, or recurrent states as they are.

        Raises:
            EngineError: the width is not that of ``kind``; or the target's norm is not at hand.
        """
        if kind is RowKind.TARGET_FEATURES and self.spec.last_hidden:
            if self._target_norm is None:
                raise EngineError("a draft on the last normed state needs the target's final norm.")
            vectors = self._target_norm(vectors)
        return super().hidden(vectors, kind)

    def _reduce(self, vectors: Tensor) -> Tensor:
        if self._reducer is None:
            return vectors
        if self._fc_bias is not None:
            return self._reducer.plus(self._fc_bias, vectors)
        return self._reducer(vectors)

    def remember(self, tokens: Tensor, hidden: Tensor, span: Span, batch: int) -> Tensor:
        """Run rows (token [R], state [R, H]) through all layers, storing keys and values.

        Returns:
            The stream after the last layer [R, H], before the final norm.
        """
        scratch = self.scratch(batch, tokens.shape[0] // batch)
        embedded = self._token_norm(self.embed(tokens))
        out = hidden
        for index, layer in enumerate(self.layers):
            normed = layer.norm(out)
            residual = normed if index == 0 and self.spec.norm_before_residual else out
            x = torch.cat([embedded, normed], -1) if index == 0 else normed
            layer.attention.qkv(x, scratch.qkv)
            store(scratch, span, index)
            out = layer.feed_forward(residual + layer.attention.out(attend(scratch, span, index)))
        return out

    def guess(self, residual: Tensor, span: Span, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """Recurrent state [R, H] and logits [R, Vd] of rows that ``remember`` finished."""
        normed = self._norm(residual)
        return (normed if self.spec.norm_output else residual), self.head(normed)
