"""The EAGLE-3 draft: one Llama layer that reads [embedding ; hidden] (engine-spec 2.1).

The embedding half of the attention input depends on the token alone, so its norm and projection
are a table over the vocabulary, made once; a row then costs one lookup and half a projection.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specbench.engine.models.attention import attend, store
from specbench.engine.models.base import RowKind, Span
from specbench.engine.models.layers import (
    ALWAYS,
    Norm,
    Projection,
    Scratch,
    ScratchCache,
    Table,
    can_pack,
    feed_forward,
    gain_from,
)
from specbench.engine.models.llama import build_block, fused_qkv
from specbench.errors import EngineError
from specbench.modelspec import DraftSpec

MAX_TABLE_BYTES = 256 * 1024 * 1024


class Eagle3Draft:
    """Weights of a one-layer draft and its forward, cut where extend needs only the last row."""

    def __init__(
        self,
        spec: DraftSpec,
        tensors: Mapping[str, Tensor],
        embedding: Tensor,
        *,
        whole: bool = True,
    ) -> None:
        """``embedding`` [V, H] is the target's or the draft's own: ``spec.embed_policy``.

        ``whole`` False for one rank's shards: neither packed nor made a table of.
        """
        self.spec, self.dtype, self.device = spec, embedding.dtype, embedding.device
        shape, eps = spec.shape, spec.shape.eps
        qkv = fused_qkv(tensors, "midlayer", shape.head_dim)
        by_token, by_hidden = qkv[:, : shape.hidden], qkv[:, shape.hidden :]
        packed = whole and can_pack(tensors)
        self.block = build_block(
            tensors,
            "midlayer",
            shape,
            by_hidden,
            tensors["midlayer.hidden_norm.weight"],
            packed=packed,
            keep_input_norm=spec.norm_before_residual,
        )
        token_norm = Norm(tensors["midlayer.input_layernorm.weight"], eps)
        self.embed, self._token_norm = Table(embedding), token_norm
        self._by_token = Projection(by_token)
        size = embedding.shape[0] * qkv.shape[0] * embedding.element_size()
        tabled = whole and size <= MAX_TABLE_BYTES
        self._table = self._by_token(token_norm(embedding)) if tabled else None
        self.fc = Projection(tensors["fc.weight"], packed=packed)
        self._input_norm = Norm(tensors["input_norm.weight"], eps) if spec.norm_before_fc else None
        self._fc_norms = tuple(
            Norm(tensors[f"fc_norm.{j}.weight"], eps)
            for j in range(spec.n_features if spec.fc_norm else 0)
        )
        norm = tensors["norm.weight"]
        head = tensors.get("lm_head.weight", embedding)
        folds = ALWAYS if spec.norm_output else gain_from(self.dtype, packed=packed)
        self._norm = Norm(norm, eps, gain_from=folds)
        self.head = Projection(head, norm=self._norm, packed=packed)
        offsets = tensors.get("d2t")
        ids = torch.arange(spec.draft_vocab, device=self.device)
        self.target_ids = ids if offsets is None else ids + offsets.to(ids)
        self._scratch = ScratchCache(shape, self.dtype, self.device)

    @property
    def projections(self) -> list[Projection]:
        """Every matrix that a step reads."""
        return [self.fc, *self.block.projections, self.head]

    def read_bytes(self, rows: int, *, extend: bool = False) -> int:
        """Bytes of weights that a decode of ``rows`` rows reads; an extend also reads fc."""
        fc = self.fc.read_bytes(rows) if extend else 0
        return fc + self.block.read_bytes(rows) + self.head.read_bytes(rows)

    def hidden(self, vectors: Tensor, kind: RowKind) -> Tensor:
        """Row states h [R, H] from target features [R, A·Ht], or recurrent states as they are.

        Raises:
            EngineError: the width is not that of ``kind``; fc is never applied by width.
        """
        width = vectors.shape[-1]
        if kind is RowKind.RECURRENT:
            _check_width(width, self.spec.shape.hidden, "a recurrent state")
            return vectors
        _check_width(width, self.spec.feature_width, "a row of target features")
        if self._input_norm is not None:
            vectors = self._input_norm(vectors)
        if self._fc_norms:
            chunks = vectors.chunk(self.spec.n_features, dim=-1)
            normed = [norm(chunk) for norm, chunk in zip(self._fc_norms, chunks, strict=True)]
            vectors = torch.cat(normed, dim=-1)
        return self._reduce(vectors)

    def _reduce(self, vectors: Tensor) -> Tensor:
        return self.fc(vectors)

    def remember(self, tokens: Tensor, hidden: Tensor, span: Span, batch: int) -> Tensor:
        """Put keys and values of rows (token [R], state [R, H]) into the draft's cache.

        Returns:
            The residual r [R, H] that ``guess`` continues from (engine-spec 2.1 step 3). The
            queries wait in ``scratch(batch, R / batch).qkv``.
        """
        scratch = self.scratch(batch, tokens.shape[0] // batch)
        normed = self.block.input_norm(hidden)
        self.block.qkv.plus(self._token_part(tokens), normed, scratch.qkv)
        store(scratch, span, 0)
        return normed if self.spec.norm_before_residual else hidden

    def guess(self, residual: Tensor, span: Span, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """Finish rows whose queries are in ``scratch``.

        Returns:
            Recurrent state [R, H] for the next draft step and logits [R, Vd].
        """
        out = self.block.out.plus(residual, attend(scratch, span, 0))
        feed_forward(self.block, out, scratch)
        normed = self._norm(out)
        return (normed if self.spec.norm_output else out), self.head(normed)

    def scratch(self, batch: int, rows: int) -> Scratch:
        """Working memory for a shape; see ``ScratchCache``."""
        return self._scratch(batch, rows)

    def _token_part(self, tokens: Tensor) -> Tensor:
        if self._table is not None:
            return self._table.index_select(0, tokens)
        return self._by_token(self._token_norm(self.embed(tokens)))


def _check_width(width: int, expected: int, what: str) -> None:
    if width != expected:
        raise EngineError(
            f"{what} has width {width}, but the draft reads {expected}.",
            todo="Check the captured layers and the row kind; fc is never skipped by width.",
        )
