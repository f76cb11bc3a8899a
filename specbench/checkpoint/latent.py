"""Sizes of a draft with latent attention (MLA), from a DeepSeek-style config (engine-spec 1.5)."""

from __future__ import annotations

from specbench.checkpoint.draft_names import layer_prefix
from specbench.checkpoint.keys import Keys
from specbench.errors import CheckpointError
from specbench.modelspec import LatentShape, LayerShape

MARK = "midlayer.self_attn.kv_a_proj_with_mqa.weight"


def latent_shape(keys: Keys) -> tuple[LayerShape, LatentShape]:
    """Layer and latent sizes; a head is ``qk_nope_head_dim + qk_rope_head_dim`` wide.

    Raises:
        CheckpointError: a size is missing, odd where pairs are rotated, or a value head is wider
            than a key head.
    """
    keys.must_be("rope_interleave", True)
    keys.must_be("attention_bias", False)
    q_rank = 0 if keys.raw("q_lora_rank") is None else keys.integer("q_lora_rank")
    shape, latent = latent_sizes(keys, q_rank)
    if latent.nope % 2 or latent.rope % 2 or latent.value > latent.nope + latent.rope:
        raise CheckpointError(
            f"{keys.source}: head parts {latent.nope} and {latent.rope}, value {latent.value}.",
            expected="Even parts, and a value head no wider than both together.",
        )
    return shape, latent


def latent_sizes(keys: Keys, q_rank: int) -> tuple[LayerShape, LatentShape]:
    """Layer and latent sizes as written, for a draft or a target; checks are the caller's.

    Raises:
        CheckpointError: a size is missing.
    """
    for name in ("num_key_value_heads", "head_dim", "qk_head_dim"):
        keys.raw(name)  # follow from the parts
    latent = LatentShape(
        q_rank=q_rank,
        kv_rank=keys.integer("kv_lora_rank"),
        nope=keys.integer("qk_nope_head_dim"),
        rope=keys.integer("qk_rope_head_dim"),
        value=keys.integer("v_head_dim"),
    )
    heads = keys.integer("num_attention_heads")
    shape = LayerShape(
        hidden=keys.integer("hidden_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=latent.nope + latent.rope,
        inner=keys.integer("intermediate_size"),
        eps=keys.number("rms_norm_eps", 1e-6),
    )
    return shape, latent


def latent_tensors(
    index: int, shape: LayerShape, latent: LatentShape, attention_in: int
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the attention of one layer that reads ``attention_in`` values."""
    at, queries = f"{layer_prefix(index)}.self_attn", shape.heads * shape.head_dim
    to_queries: dict[str, tuple[int, ...]] = {
        f"{at}.q_a_proj.weight": (latent.q_rank, attention_in),
        f"{at}.q_a_layernorm.weight": (latent.q_rank,),
        f"{at}.q_b_proj.weight": (queries, latent.q_rank),
    }
    if not latent.q_rank:
        to_queries = {f"{at}.q_proj.weight": (queries, attention_in)}
    return to_queries | {
        f"{at}.kv_a_proj_with_mqa.weight": (latent.kv_rank + latent.rope, attention_in),
        f"{at}.kv_a_layernorm.weight": (latent.kv_rank,),
        f"{at}.kv_b_proj.weight": (shape.heads * (latent.nope + latent.value), latent.kv_rank),
        f"{at}.o_proj.weight": (shape.hidden, shape.heads * latent.value),
    }
