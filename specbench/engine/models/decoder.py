"""The target of every family beyond Llama: layers built from the parts that its spec names.

There is one loop, and what it captures is an argument that it fills: an inner model cannot be
wrapped in a way that loses its features, because nothing but this loop returns a residual stream,
and ``checked_features`` holds their width against the spec at every call (engine-spec 3.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from specbench.engine.models.base import Features, Span
from specbench.engine.models.cache_view import CacheView
from specbench.engine.models.features import checked_features, new_features
from specbench.engine.models.layers import Norm, Projection, Table
from specbench.engine.models.mla import LatentAttention
from specbench.engine.models.moe import MoeFeedForward
from specbench.engine.models.parts import HeadAttention, SwiGlu, linear
from specbench.modelspec import TargetSpec


class DecoderLayer(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x)."""

    def __init__(self, spec: TargetSpec, tensors: Mapping[str, Tensor], layer: int) -> None:
        super().__init__()
        at, eps = f"model.layers.{layer}", spec.shape.eps
        kind = HeadAttention if spec.attention.latent is None else LatentAttention
        self.attention = kind(spec, tensors, layer)
        self._before = Norm(tensors[f"{at}.input_layernorm.weight"], eps)
        self._between = Norm(tensors[f"{at}.post_attention_layernorm.weight"], eps)
        experts = spec.experts
        self.feed_forward = (
            SwiGlu(tensors, f"{at}.mlp")
            if experts is None or layer not in experts.layers
            else MoeFeedForward(experts, tensors, f"{at}.mlp")
        )

    def forward(self, x: Tensor, view: CacheView) -> Tensor:
        """The residual stream [R, H] behind the layer, as a new tensor."""
        x = x + self.attention(self._before(x), view)
        out: Tensor = x + self.feed_forward(self._between(x))
        return out


class DecoderTarget(nn.Module):
    """Weights on one device in one dtype, and the forward pass over any rows of any lanes."""

    packed = False
    projections: Sequence[Projection] = ()  # none that could be moved to huge pages

    def __init__(
        self, spec: TargetSpec, tensors: Mapping[str, Tensor], capture: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.spec, self.capture = spec, capture
        self.windowed = any(spec.attention.windows)
        self.embedding = tensors["model.embed_tokens.weight"]
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        self.embed = Table(self.embedding)
        self.layers = nn.ModuleList(
            DecoderLayer(spec, tensors, index) for index in range(spec.n_layers)
        )
        self._norm = Norm(tensors["model.norm.weight"], spec.shape.eps)
        self.head = linear(self.embedding if spec.tied else tensors["lm_head.weight"])

    def new_features(self, rows: int) -> Features | None:
        """Room for the captured residual streams of ``rows`` rows; None when none is captured."""
        return new_features(self.capture, rows, self.spec.shape.hidden, self.embedding)

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        """Run all layers.

        Args:
            tokens: ids [R], lanes after one another.
            span: places, cache views and mask of the R rows.
            batch: B; each lane has R / B rows.
            features: room for the captured residual stream; None when nothing is captured.

        Returns:
            The residual stream after the last layer, before the final norm [R, H].

        Raises:
            EngineError: features are captured and their room is missing or of another size.
        """
        rows = tokens.shape[0]
        checked_features(features, self.capture, rows, self.spec.shape.hidden)
        view = CacheView(span, batch, rows)
        wanted = {} if features is None else features.parts
        x: Tensor = self.embed(tokens)
        for index, layer in enumerate(self.layers):
            if index in wanted:
                wanted[index].copy_(x)
            x = layer(x, view)
        if self.spec.n_layers in wanted:
            wanted[self.spec.n_layers].copy_(x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [rows, V] of un-normed final states [rows, H]."""
        out: Tensor = self.head(self._norm(hidden))
        return out

    def read_bytes(self, rows: int) -> int:
        """Bytes of all weights; a forward reads them but for experts that were not chosen."""
        return sum(p.numel() * p.element_size() for p in (*self.parameters(), *self.buffers()))
