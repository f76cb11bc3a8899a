"""What a checkpoint says of itself, as plain data: TargetSpec and DraftSpec.

Every run embeds both records, so that a result can be traced to the exact wiring it was measured
with (engine-spec 1.10). Captured layers are stored as *physical* indices only: 0 is the output of
the embedding, k the residual stream that enters layer k, n the output of the last layer before
the final norm (engine-spec 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.estimate import Caveat


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Plain rotary embedding: base and the length that the model was trained for."""

    theta: float
    max_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """Sizes of one Llama decoder layer, in elements."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """A target model: sizes, rope, tying, stop tokens and what was assumed while reading it."""

    family: str
    n_layers: int
    vocab: int
    shape: LayerShape
    rope: RopeSpec
    tied: bool
    dtype: str
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpec:
    """An EAGLE-3 draft, normalised from any file format (engine-spec 1.10).

    ``shape.hidden`` is the draft's own width H, ``target_hidden`` the width Ht of one captured
    feature, ``n_features`` their number A; ``fc`` maps A·Ht to H. ``capture_physical`` are
    ascending physical indices and ``capture_source`` says which file or flag gave them. The
    ``*_policy`` fields say what was chosen and why. ``quant`` is empty for plain weights.
    """

    file_format: str
    n_layers: int
    vocab: int
    draft_vocab: int
    shape: LayerShape
    rope: RopeSpec
    target_hidden: int
    n_features: int
    capture_physical: tuple[int, ...]
    capture_source: str
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    embed_policy: str
    head_policy: str
    d2t_policy: str
    dtype: str
    quant: str = ""
    caveats: tuple[Caveat, ...] = ()

    @property
    def feature_width(self) -> int:
        """Width of one row of target features: A·Ht."""
        return self.n_features * self.target_hidden
