"""The Llama target: residual stream captured un-normed at physical indices (engine-spec 3.1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specbench.engine.models.attention import attend, store
from specbench.engine.models.base import Features, Span
from specbench.engine.models.features import checked_features
from specbench.engine.models.layers import (
    ALWAYS,
    Block,
    Norm,
    Projection,
    Scratch,
    ScratchCache,
    Table,
    can_pack,
    feed_forward,
    gain_from,
    pair_rows,
)
from specbench.modelspec import LayerShape, TargetSpec


def fused_qkv(tensors: Mapping[str, Tensor], prefix: str, head_dim: int) -> Tensor:
    """Query, key and value weights as one [q + k + v, in], q and k in pair order."""
    q, k, v = (tensors[f"{prefix}.self_attn.{name}_proj.weight"] for name in "qkv")
    return torch.cat([pair_rows(q, head_dim), pair_rows(k, head_dim), v])


def build_block(
    tensors: Mapping[str, Tensor],
    prefix: str,
    shape: LayerShape,
    qkv: Tensor,
    qkv_norm: Tensor,
    *,
    packed: bool,
    keep_input_norm: bool = False,
) -> Block:
    """One layer from named tensors.

    Args:
        tensors: all tensors of the checkpoint.
        prefix: of the layer's names.
        shape: its sizes.
        qkv: fused projection [q + k + v, in]; given, since a draft cuts it differently.
        qkv_norm: weight of the norm in front of it.
        packed: keep float16 weights packed for several rows.
        keep_input_norm: the normed value is needed itself, so its weight is not folded away.
    """
    folds = gain_from(qkv.dtype, packed=packed)
    post = tensors[f"{prefix}.post_attention_layernorm.weight"]
    before = Norm(qkv_norm, shape.eps, gain_from=ALWAYS if keep_input_norm else folds)
    between = Norm(post, shape.eps, gain_from=folds)
    gate_up = torch.cat([tensors[f"{prefix}.mlp.{name}_proj.weight"] for name in ("gate", "up")])
    return Block(
        input_norm=before,
        qkv=Projection(qkv, norm=before, packed=packed),
        out=Projection(tensors[f"{prefix}.self_attn.o_proj.weight"], packed=packed),
        post_norm=between,
        gate_up=Projection(gate_up, norm=between, packed=packed),
        down=Projection(tensors[f"{prefix}.mlp.down_proj.weight"], packed=packed),
    )


class LlamaTarget:
    """Weights on one device in one dtype, and the forward pass over any rows of any lanes."""

    windowed = False

    def __init__(
        self,
        spec: TargetSpec,
        tensors: Mapping[str, Tensor],
        capture: tuple[int, ...],
        *,
        whole: bool = True,
    ) -> None:
        """``whole`` False for one rank's shards, which are not packed: all ranks have to agree."""
        self.spec, self.capture = spec, capture
        shape = spec.shape
        self.embedding = tensors["model.embed_tokens.weight"]
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        self.embed = Table(self.embedding)
        self.packed = packed = whole and can_pack(tensors)
        self.blocks = tuple(
            build_block(
                tensors,
                f"model.layers.{i}",
                shape,
                fused_qkv(tensors, f"model.layers.{i}", shape.head_dim),
                tensors[f"model.layers.{i}.input_layernorm.weight"],
                packed=packed,
            )
            for i in range(spec.n_layers)
        )
        norm = tensors["model.norm.weight"]
        head = self.embedding if spec.tied else tensors["lm_head.weight"]
        self._norm = Norm(norm, shape.eps, gain_from=gain_from(self.dtype, packed=packed))
        self.head = Projection(head, norm=self._norm, packed=packed)
        self._scratch = ScratchCache(shape, self.dtype, self.device)

    @property
    def projections(self) -> list[Projection]:
        """Every matrix that a step reads, in the order of use."""
        return [*(p for block in self.blocks for p in block.projections), self.head]

    def read_bytes(self, rows: int) -> int:
        """Bytes of weights that a forward of ``rows`` rows with logits reads."""
        return sum(projection.read_bytes(rows) for projection in self.projections)

    def new_features(self, rows: int) -> Features | None:
        """Room for the captured residual streams of ``rows`` rows; None when none is captured."""
        if not self.capture:
            return None
        width = self.spec.shape.hidden
        size = (rows, len(self.capture) * width)
        tensor = torch.zeros(size, dtype=self.dtype, device=self.device)
        parts = {k: tensor[:, j * width : (j + 1) * width] for j, k in enumerate(self.capture)}
        return Features(tensor, parts)

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        """Run all layers.

        Args:
            tokens: ids [R], lanes after one another.
            span: places, cache views and mask of the R rows.
            batch: B; each lane has R / B rows.
            features: room for the captured residual stream, or None.

        Returns:
            The residual stream after the last layer, before the final norm [R, H].

        Raises:
            EngineError: layers are captured, and the room for them is missing or of another size.
        """
        checked_features(features, self.capture, tokens.shape[0], self.spec.shape.hidden)
        scratch = self.scratch(batch, tokens.shape[0] // batch)
        wanted = {} if features is None else features.parts
        x = self.embed(tokens)
        for index, block in enumerate(self.blocks):
            if index in wanted:
                wanted[index].copy_(x)
            block.qkv.into(block.input_norm(x), scratch.qkv)
            store(scratch, span, index)
            block.out.add_to(x, attend(scratch, span, index))
            feed_forward(block, x, scratch)
        if self.spec.n_layers in wanted:
            wanted[self.spec.n_layers].copy_(x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [rows, V] of un-normed final states [rows, H]."""
        return self.head(self._norm(hidden))

    def scratch(self, batch: int, rows: int) -> Scratch:
        """Working memory for a shape; see ``ScratchCache``."""
        return self._scratch(batch, rows)
