"""Target and draft whose forwards are single calls into the compiled library.

They keep no matrix of torch's own. What torch does besides (lookups in the draft's token table,
fc's norms) is inherited.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import Array, byref, c_int64

import torch
from torch import Tensor

from specbench.engine.models.base import Features, Span
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.features import checked_features
from specbench.engine.models.layers import Projection, Scratch, ScratchCache
from specbench.engine.models.llama import LlamaTarget, fused_qkv
from specbench.engine.native.calls import (
    CLayer,
    CModel,
    Room,
    Weight,
    at,
    c_rows,
    fits,
    lay_out,
)
from specbench.modelspec import DraftSpec, LayerShape, TargetSpec


def can_run(shape: LayerShape, dtype: torch.dtype, device: torch.device) -> bool:
    """True for float32 on a CPU, one thread, with widths that fill registers."""
    one_thread = torch.get_num_threads() == 1
    return device.type == "cpu" and dtype == torch.float32 and one_thread and fits(shape)


class NativeLayer:
    """The weights of one layer."""

    def __init__(
        self, tensors: Mapping[str, Tensor], prefix: str, qkv: Tensor, input_norm: Tensor
    ) -> None:
        named = [tensors[f"{prefix}.mlp.{name}_proj.weight"] for name in ("gate", "up")]
        self.gains = (
            input_norm.contiguous(),
            tensors[f"{prefix}.post_attention_layernorm.weight"].contiguous(),
        )
        self.weights = (
            Weight(qkv),
            Weight(tensors[f"{prefix}.self_attn.o_proj.weight"]),
            Weight(torch.cat(named)),
            Weight(tensors[f"{prefix}.mlp.down_proj.weight"]),
        )

    @property
    def c(self) -> CLayer:
        """The structure that points to gains and weights, where they lie now."""
        return CLayer(*(g.data_ptr() for g in self.gains), *(w.c for w in self.weights))


class NativeModel:
    """A stack of layers with its head, and the structure that points to all of it."""

    def __init__(
        self,
        shape: LayerShape,
        layers: list[NativeLayer],
        *,
        embedding: Tensor,
        norm: Tensor,
        head: Tensor,
        first: Sequence[Weight] = (),
    ) -> None:
        """``embedding``: rows that a token looks up.

        ``first`` are weights that a step reads in front of the layers.
        """
        self.layers, self.head = layers, Weight(head)
        lay_out([*first, *(weight for layer in layers for weight in layer.weights), self.head])
        self._array = (CLayer * len(layers))(*(layer.c for layer in layers))
        self._kept = (embedding.contiguous(), norm.contiguous())
        rows, gain = self._kept
        self.c = CModel(
            hidden=shape.hidden,
            inner=shape.inner,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            layers=len(layers),
            eps=shape.eps,
            layer=ctypes.cast(self._array, ctypes.c_void_p),
            embedding=rows.data_ptr(),
            final_gain=gain.data_ptr(),
            head=self.head.c,
        )

    @property
    def read_bytes(self) -> int:
        """Bytes of weights that a forward with scores reads, whatever the rows."""
        weights = (weight for layer in self.layers for weight in layer.weights)
        return sum(weight.read_bytes for weight in weights) + self.head.read_bytes


class NativeTarget(LlamaTarget):
    """A Llama target that runs all layers in one call."""

    def __init__(
        self,
        spec: TargetSpec,
        tensors: Mapping[str, Tensor],
        capture: tuple[int, ...],
        library: ctypes.CDLL,
    ) -> None:
        # Not the base's own: the matrices that torch would read are never made.
        self.spec, self.capture, self.library = spec, capture, library
        self.embedding = tensors["model.embed_tokens.weight"]
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        prefixes = [f"model.layers.{i}" for i in range(spec.n_layers)]
        self.model = NativeModel(
            spec.shape,
            [
                NativeLayer(
                    tensors,
                    prefix,
                    fused_qkv(tensors, prefix, spec.shape.head_dim),
                    tensors[f"{prefix}.input_layernorm.weight"],
                )
                for prefix in prefixes
            ],
            embedding=self.embedding,
            norm=tensors["model.norm.weight"],
            head=self.embedding if spec.tied else tensors["lm_head.weight"],
        )
        self.packed = self.model.head.panels.dtype == torch.float16
        self.room = Room(library, self.model.c)
        self.places = _places(capture, spec.n_layers)

    @property
    def projections(self) -> list[Projection]:
        """None of torch's own."""
        return []

    def read_bytes(self, rows: int) -> int:
        """Bytes of weights that a forward with logits reads."""
        return self.model.read_bytes

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        """As ``LlamaTarget.forward``."""
        total, tokens = tokens.shape[0], tokens.contiguous()  # named: it must outlive its address
        checked_features(features, self.capture, total, self.spec.shape.hidden)
        rows = c_rows(span, batch, total // batch, self.spec.shape.head_dim)
        x = torch.empty(total, self.spec.shape.hidden)
        places, layers = self.places, self.capture if features is None else tuple(features.parts)
        if layers != self.capture:  # a recorder asks for layers of its own
            places = _places(layers, self.spec.n_layers)
        self.library.target_forward(
            byref(self.model.c),
            byref(rows),
            at(tokens),
            at(x),
            at(None if features is None else features.tensor),
            c_int64(0 if features is None else features.tensor.stride(0)),
            places,
            self.room(total, rows.seen),
        )
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """As ``LlamaTarget.logits``."""
        hidden = hidden.contiguous()
        out = torch.empty(hidden.shape[0], self.spec.vocab)
        self.library.head_scores(
            byref(self.model.c),
            at(hidden),
            c_int64(hidden.shape[0]),
            self.room(hidden.shape[0], 0),
            at(out),
        )
        return out


class NativeDraft(Eagle3Draft):
    """An EAGLE-3 draft whose layer runs in one call; whole chains and extends: ``steps``."""

    def __init__(
        self,
        spec: DraftSpec,
        tensors: Mapping[str, Tensor],
        embedding: Tensor,
        library: ctypes.CDLL,
    ) -> None:
        # The base makes fc's norms, the token table and the ids; its matrices are dropped again.
        super().__init__(spec, tensors, embedding)
        shape = spec.shape
        qkv = fused_qkv(tensors, "midlayer", shape.head_dim)
        norm = tensors["midlayer.hidden_norm.weight"]
        assert self._table is not None  # choice.py asked for it
        self.library = library
        self.fc_weight = Weight(tensors["fc.weight"])
        self.model = NativeModel(
            shape,
            [NativeLayer(tensors, "midlayer", qkv[:, shape.hidden :], norm)],
            embedding=self._table,
            norm=tensors["norm.weight"],
            head=tensors.get("lm_head.weight", embedding),
            first=[self.fc_weight],
        )
        self.fc_c = self.fc_weight.c
        self.room = Room(library, self.model.c)
        self._scratch = ScratchCache(shape, self.dtype, self.device)
        del self.block, self.fc, self.head, self._by_token

    @property
    def projections(self) -> list[Projection]:
        """None of torch's own."""
        return []

    def read_bytes(self, rows: int, *, extend: bool = False) -> int:
        """Bytes of weights that a decode reads; an extend also reads fc."""
        return self.model.read_bytes + (self.fc_weight.read_bytes if extend else 0)

    @property
    def norms_features(self) -> bool:
        """True when a norm stands in front of fc."""
        return self._input_norm is not None or bool(self._fc_norms)

    def _reduce(self, vectors: Tensor) -> Tensor:
        vectors = vectors.contiguous()
        out = torch.empty(vectors.shape[0], self.fc_weight.shape[0])
        self.library.multiply(byref(self.fc_c), at(vectors), c_int64(vectors.shape[0]), at(out))
        return out

    def remember(self, tokens: Tensor, hidden: Tensor, span: Span, batch: int) -> Tensor:
        """As ``Eagle3Draft.remember``."""
        count = tokens.shape[0] // batch
        tokens, hidden, normed = tokens.contiguous(), hidden.contiguous(), torch.empty(hidden.shape)
        rows = c_rows(span, batch, count, self.spec.shape.head_dim)
        self.library.draft_remember(
            byref(self.model.c),
            byref(rows),
            at(tokens),
            at(hidden),
            at(normed),
            at(self.scratch(batch, count).qkv),
        )
        return normed if self.spec.norm_before_residual else hidden

    def guess(self, residual: Tensor, span: Span, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """As ``Eagle3Draft.guess``."""
        total = residual.shape[0]
        rows = c_rows(span, total // scratch.rows, scratch.rows, self.spec.shape.head_dim)
        out = residual.clone(memory_format=torch.contiguous_format)
        normed, logits = torch.empty(out.shape), torch.empty(total, self.model.head.c.out)
        self.library.draft_guess(
            byref(self.model.c),
            byref(rows),
            at(scratch.qkv),
            at(out),
            at(normed),
            at(logits),
            self.room(total, rows.seen),
        )
        return (normed if self.spec.norm_output else out), logits


def _places(layers: tuple[int, ...], n_layers: int) -> Array[c_int64]:
    """Of each physical index: its place among the captured ``layers``, or -1."""
    found = [layers.index(i) if i in layers else -1 for i in range(n_layers + 1)]
    return (c_int64 * len(found))(*found)
