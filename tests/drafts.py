"""Tiny random drafts of every kind, on disk in each code base's layout."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.reference_draft import Rules
from tests.tiny import TinyPair, TinyShape, draft_config, write_folder, write_pair

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of draft: which flags are set, how many layers, latent attention, last hidden.

    ``hidden`` is a width of its own, beside the target's, which needs an embedding of its own.
    """

    name: str
    flags: tuple[str, ...] = ()
    layers: int = 1
    upper_norm: str = "input_layernorm"
    latent: bool = False
    last_hidden: bool = False
    fc: bool = True
    fc_bias: bool = False
    bias: bool = False
    head_norm: bool = False
    q_rank: bool = True
    hidden: int = 0
    scaling: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


# As real files have them, at lengths that a few rows feel.
LINEAR = {"type": "linear", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 24,
        "beta_fast": 4.0, "beta_slow": 1.0}  # fmt: skip
MSCALE = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}

KINDS = (
    Kind(name="plain"),
    *(Kind(name=flag, flags=(flag,)) for flag in FLAGS),
    Kind(name="all flags", flags=FLAGS),
    Kind(name="two layers", layers=2),
    Kind(name="three layers, all flags", layers=3, flags=FLAGS),
    Kind(name="two layers by hidden_norm", layers=2, upper_norm="hidden_norm"),
    Kind(name="latent", latent=True),
    Kind(name="latent 3.1", latent=True, flags=("fc_norm", "norm_output")),
    Kind(name="two latent layers", latent=True, layers=2),
    Kind(name="normed heads", head_norm=True),
    Kind(name="normed heads, all flags", head_norm=True, flags=FLAGS),
    Kind(name="biases", bias=True),
    Kind(name="two layers, normed heads, biases", head_norm=True, bias=True, layers=2),
    Kind(name="fc bias", fc_bias=True),
    Kind(name="linear", scaling=LINEAR),
    Kind(name="llama3", scaling=LLAMA3),
    Kind(name="yarn", scaling=YARN),
    Kind(name="normed heads, llama3", head_norm=True, scaling=LLAMA3),
    Kind(name="two layers, yarn", layers=2, scaling=YARN),
    Kind(name="latent, yarn with mscale", latent=True, scaling=MSCALE),
    Kind(name="latent, queries in one step", latent=True, q_rank=False),
    Kind(name="narrower, own embedding", hidden=48, flags=("norm_before_fc", "fc_norm")),
    Kind(name="narrower, two layers, normed heads", hidden=48, layers=2, head_norm=True),
    Kind(name="last hidden", last_hidden=True),
    Kind(name="last hidden without fc", last_hidden=True, fc=False),
)
NOPE, ROPE, VALUE, Q_RANK, KV_RANK = 16, 8, 12, 20, 14


def write_kind(folder: Path, kind: Kind, *, seed: int = 1) -> TinyPair:
    """A random tiny pair whose draft is of ``kind``, in SpecForge's config with all flags."""
    pair = write_pair(folder, skilled=False, seed=seed)
    shape, generator = pair.shape, torch.Generator().manual_seed(seed)

    def new(*size: int) -> Tensor:
        values = torch.randn(size, generator=generator)
        return 1 + 0.3 * values if len(size) == 1 else values * size[1] ** -0.5

    h, features = kind.hidden or shape.hidden, 1 if kind.last_hidden else len(shape.capture)
    wide = shape.hidden  # of one feature
    first = "layers.0" if kind.latent else "midlayer"
    ids = torch.randperm(shape.vocab, generator=generator)[: shape.draft_vocab].sort()[0]
    tensors: dict[str, Tensor] = {
        f"{first}.hidden_norm.weight": new(h),
        f"{first}.input_layernorm.weight": new(h),
        "norm.weight": new(h),
        "lm_head.weight": new(shape.draft_vocab, h),
        "d2t": ids - torch.arange(shape.draft_vocab),
        "t2d": torch.zeros(shape.vocab, dtype=torch.bool).index_fill_(0, ids, value=True),
    }
    if kind.fc:
        tensors["fc.weight"] = new(h, features * wide)
    if kind.hidden:
        tensors["embed_tokens.weight"] = new(shape.vocab, h)
    if kind.fc_bias:
        tensors["fc.bias"] = new(h)
    if "norm_before_fc" in kind.flags:
        tensors["input_norm.weight"] = new(features * wide)
    if "fc_norm" in kind.flags:
        tensors |= {f"fc_norm.{j}.weight": new(wide) for j in range(features)}
    for i in range(kind.layers):
        at, width = (first, 2 * h) if i == 0 else (f"layers.{i}", h)
        if i > 0:
            tensors[f"{at}.{kind.upper_norm}.weight"] = new(h)
        tensors |= attention(at, kind, shape, new, width)
        tensors[f"{at}.post_attention_layernorm.weight"] = new(h)
        tensors[f"{at}.mlp.gate_proj.weight"] = new(shape.inner, h)
        tensors[f"{at}.mlp.up_proj.weight"] = new(shape.inner, h)
        tensors[f"{at}.mlp.down_proj.weight"] = new(h, shape.inner)
    write_folder(pair.draft, kind_config(kind, shape), tensors)
    return pair


def kind_config(kind: Kind, shape: TinyShape) -> dict[str, Any]:
    """config.json of a draft of ``kind``."""
    config = {
        **draft_config(shape),
        "num_hidden_layers": kind.layers,
        **dict.fromkeys(kind.flags, True),
        **(latent_config(kind) if kind.latent else {}),
        "attention_bias": kind.bias,
    }
    if kind.hidden:
        config |= {"hidden_size": kind.hidden, "target_hidden_size": shape.hidden}
    if kind.scaling:
        config["rope_scaling"] = kind.scaling
    if kind.last_hidden:
        config["eagle_config"] = {"use_aux_hidden_state": False}
    return config


def attention(
    at: str,
    kind: Kind,
    shape: Any,
    new: Any,
    width: int,
    *,
    value: int = VALUE,
    kv_rank: int = KV_RANK,
) -> dict[str, Tensor]:
    """Random tensors of the attention of layer ``at``, which reads ``width`` values."""
    a, h, heads = f"{at}.self_attn", kind.hidden or shape.hidden, shape.heads
    if not kind.latent:
        q, kv = heads * shape.head_dim, shape.kv_heads * shape.head_dim
        sizes = {"q": (q, width), "k": (kv, width), "v": (kv, width), "o": (h, q)}
        made = {f"{a}.{n}_proj.weight": new(*size) for n, size in sizes.items()}
        if kind.bias:
            made |= {f"{a}.{n}_proj.bias": new(size[0]) for n, size in sizes.items()}
        if kind.head_norm:
            made |= {f"{a}.{n}_norm.weight": new(shape.head_dim) for n in "qk"}
        return made
    queries = {
        f"{a}.q_a_proj.weight": new(Q_RANK, width),
        f"{a}.q_a_layernorm.weight": new(Q_RANK),
        f"{a}.q_b_proj.weight": new(heads * (NOPE + ROPE), Q_RANK),
    }
    if not kind.q_rank:
        queries = {f"{a}.q_proj.weight": new(heads * (NOPE + ROPE), width)}
    return {
        **queries,
        f"{a}.kv_a_proj_with_mqa.weight": new(kv_rank + ROPE, width),
        f"{a}.kv_a_layernorm.weight": new(kv_rank),
        f"{a}.kv_b_proj.weight": new(heads * (NOPE + value), kv_rank),
        f"{a}.o_proj.weight": new(h, heads * value),
    }


def latent_config(kind: Kind) -> dict[str, int | None]:
    """The keys of latent attention."""
    return {
        "q_lora_rank": Q_RANK if kind.q_rank else None,
        "kv_lora_rank": KV_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE,
        "n_routed_experts": 8,
    }


def rules_of(kind: Kind, pair: TinyPair, target_norm: Tensor) -> Rules:
    """The same draft for the reference."""
    shape = pair.shape
    return Rules(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        eps=shape.eps,
        theta=shape.theta,
        first="layers.0" if kind.latent else "midlayer",
        layers=kind.layers,
        upper_norm=kind.upper_norm,
        norm_before_residual="norm_before_residual" in kind.flags,
        norm_output="norm_output" in kind.flags,
        nope=NOPE if kind.latent else 0,
        rope=ROPE if kind.latent else 0,
        value=VALUE if kind.latent else 0,
        target_norm=target_norm if kind.last_hidden else None,
        scaling=kind.scaling,
    )


def read_config(pair: TinyPair) -> dict[str, Any]:
    """The draft's config.json."""
    table: dict[str, Any] = json.loads((pair.draft / "config.json").read_text())
    return table
