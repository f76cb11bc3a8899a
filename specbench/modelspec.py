"""What a checkpoint says of itself, as plain data: TargetSpec and DraftSpec.

Every run embeds both records, so that a result can be traced to the exact wiring it was measured
with (engine-spec 1.10). Captured layers are stored as *physical* indices only: 0 is the output of
the embedding, k the residual stream that enters layer k, n the output of the last layer before
the final norm (engine-spec 3.1).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from specbench.estimate import Caveat


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotations are stretched beyond the first training length (engine-spec 12.3).

    ``kind`` is linear, llama3 or yarn; ``original`` is the length before stretching. ``low`` and
    ``high`` are llama3's frequency factors, or yarn's beta_slow and beta_fast. ``truncate`` rounds
    yarn's ramp to whole dimensions. Rotations are multiplied by ``attention_factor``, scores
    besides by ``score_factor`` (DeepSeek's mscale squared).
    """

    kind: str
    factor: float
    original: int
    low: float = 1.0
    high: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    score_factor: float = 1.0

    def __str__(self) -> str:
        return f"{self.kind} by {self.factor:g} from {self.original} positions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary embedding: base, the length that the model was trained for, scaling if any.

    ``dim`` is the rotated width of a head, None for the whole head.
    """

    theta: float
    max_position: int
    dim: int | None = None
    scaling: RopeScaling | None = None


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
class LatentShape:
    """Sizes of latent attention (engine-spec 12.2): ranks, and head parts in elements.

    A query or key head is ``nope`` plus ``rope`` wide, a value head ``value``. ``q_rank`` 0 means
    that queries are projected in one step (DeepSeek-V2-Lite).
    """

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """What a target's attention has beyond Llama's; the defaults are Llama's.

    ``windows`` gives the sliding window of each layer in tokens, None for full attention; empty
    when every layer is full. ``sinks`` is a learnt score per head that takes its share of the
    softmax (gpt-oss). ``head_norm`` norms each query and key head (Qwen3). ``adjacent`` says that
    rotated pairs lie side by side in the checkpoint (DeepSeek) and not half a head apart.
    """

    qkv_bias: bool = False
    out_bias: bool = False
    head_norm: bool = False
    sinks: bool = False
    adjacent: bool = False
    windows: tuple[int | None, ...] = ()
    latent: LatentShape | None = None

    def window(self, layer: int) -> int | None:
        """The sliding window of a layer, None for full attention."""
        return self.windows[layer] if self.windows else None


LLAMA_ATTENTION = AttentionSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpec:
    """The mixture-of-experts layers of a target (engine-spec 12.1).

    ``layers`` have experts, the others a dense MLP. ``score`` is how the router's logits become
    weights: softmax over all experts, sigmoid, or softmax over the chosen ones. ``correction``
    adds a learnt bias to the scores for the choice alone. Of ``groups``, the ``kept_groups`` best
    by ``group_score`` (max, or sum of the top2) may be chosen from. ``normalise`` lets chosen
    weights sum to 1 before ``scaling``. ``shared_inner`` is the width of the shared expert, None
    without one. ``clamp`` (alpha, limit) asks for gpt-oss's clamped SwiGLU with biases.
    """

    layers: tuple[int, ...]
    count: int
    active: int
    inner: int
    score: str
    correction: bool = False
    groups: int = 1
    kept_groups: int = 1
    group_score: str = "max"
    normalise: bool = False
    scaling: float = 1.0
    shared_inner: int | None = None
    clamp: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """A target model: sizes, parts, rope, tying, stop tokens and what was assumed on reading it.

    ``context_limit`` is the longest context at which our forward is the model's, where that is
    less than its rope allows; None otherwise.
    """

    family: str
    n_layers: int
    vocab: int
    shape: LayerShape
    rope: RopeSpec
    tied: bool
    dtype: str
    attention: AttentionSpec = LLAMA_ATTENTION
    experts: ExpertSpec | None = None
    context_limit: int | None = None
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    caveats: tuple[Caveat, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether every layer is a Llama layer, so that the forward made for those runs it."""
        return self.attention == LLAMA_ATTENTION and self.experts is None

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Key heads, key width and value width of one cached token in one layer.

        Latent attention caches the latent and the rotated part once for all heads.
        """
        latent = self.attention.latent
        if latent is None:
            return self.shape.kv_heads, self.shape.head_dim, self.shape.head_dim
        return 1, latent.kv_rank + latent.rope, latent.kv_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpec:
    """An EAGLE-3 draft, normalised from any file format (engine-spec 1.10).

    ``shape.hidden`` is the draft's own width H, ``target_hidden`` the width Ht of one captured
    feature, ``n_features`` their number A; ``fc`` maps A·Ht to H. ``capture_physical`` are
    ascending physical indices and ``capture_source`` says which file or flag gave them. The
    ``*_policy`` fields say what was chosen and why. ``quant`` is empty for plain weights.

    ``latent`` is set for latent attention; ``shape`` then has a key head per query head and their
    whole width. ``last_hidden`` means one feature, the target's last state *after* its final norm
    (``capture_physical`` is then (n,)), and ``has_fc`` that a matrix reduces it. ``upper_norm`` is
    the norm in front of layers 1 and up. ``qkv_bias``, ``out_bias`` and ``head_norm`` are those of
    ``AttentionSpec``; ``fc_bias`` says that fc adds one. ``context_limit`` is the longest context
    at which our forward is the draft's, where it has a sliding window; None without one.
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
    latent: LatentShape | None = None
    last_hidden: bool = False
    has_fc: bool = True
    upper_norm: str = "input_layernorm"
    qkv_bias: bool = False
    out_bias: bool = False
    head_norm: bool = False
    fc_bias: bool = False
    context_limit: int | None = None
    caveats: tuple[Caveat, ...] = ()

    @property
    def feature_width(self) -> int:
        """Width of one row of target features: A·Ht."""
        return self.n_features * self.target_hidden

    @property
    def longest(self) -> int:
        """Tokens up to which our forward is the draft's: its trained positions, and its window."""
        known = self.rope.max_position
        return known if self.context_limit is None else min(known, self.context_limit)

    @property
    def stacked(self) -> bool:
        """Whether every row goes through whole layers: more than the classic single Llama layer."""
        extras = self.qkv_bias or self.out_bias or self.head_norm or self.fc_bias
        return self.n_layers > 1 or self.latent is not None or self.last_hidden or extras


def as_record(spec: TargetSpec | DraftSpec) -> dict[str, Any]:
    """A spec as a result embeds it: plain data, without the caveats, which stand beside it."""
    return {name: value for name, value in asdict(spec).items() if name != "caveats"}
