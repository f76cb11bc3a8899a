"""DeepSeek-V2 and V3 (R1): latent attention, shared and routed experts (engine-spec 12.1, 12.2)."""

from __future__ import annotations

from dataclasses import replace

from specbench.checkpoint.families.base import (
    Family,
    Parts,
    check_routing,
    expert_count,
    expert_layers,
    natural,
    plain_weights,
    without_experts,
)
from specbench.checkpoint.keys import Keys
from specbench.checkpoint.latent import latent_sizes
from specbench.checkpoint.rope import read_rope
from specbench.errors import CheckpointError
from specbench.modelspec import AttentionSpec, ExpertSpec

_TRAINING = ("aux_loss_alpha", "seq_aux", "output_router_logits", "ep_size", "router_aux_loss_coef")


def latent_parts(keys: Keys) -> Parts:
    """Layer, rotation and latent attention; the family adds its experts.

    Raises:
        CheckpointError: a size is missing, the rotated part is odd, or the weights are not plain.
    """
    keys.must_be("attention_bias", False, None)
    keys.must_be("mlp_bias", False, None)
    shape, latent = latent_sizes(keys, natural(keys, "q_lora_rank"))
    if latent.rope % 2 or latent.kv_rank % 2:
        raise CheckpointError(
            f"{keys.source}: qk_rope_head_dim={latent.rope}, kv_lora_rank={latent.kv_rank}.",
            expected="Even widths: values are rotated in pairs.",
        )
    plain_weights(keys)
    return Parts(
        shape=shape,
        rope=read_rope(keys, latent.rope, part_of_head=True),
        attention=AttentionSpec(latent=latent, adjacent=True),
    )


def sigmoid_experts(keys: Keys, first_dense: int) -> ExpertSpec:
    """V3's routing: sigmoid scores, a bias for the choice, groups scored by their two best.

    Raises:
        CheckpointError: another routing is asked for, or counts do not fit.
    """
    for name in _TRAINING:
        keys.raw(name)
    keys.must_be("scoring_func", "sigmoid", None)
    keys.must_be("topk_method", "noaux_tc", None)
    keys.must_be("moe_layer_freq", 1, None)
    inner = keys.integer("moe_intermediate_size")
    experts = ExpertSpec(
        layers=expert_layers(keys, first_dense),
        count=expert_count(keys),
        active=keys.integer("num_experts_per_tok"),
        inner=inner,
        score="sigmoid",
        correction=True,
        groups=keys.integer("n_group", 1),
        kept_groups=keys.integer("topk_group", 1),
        group_score="top2",
        normalise=keys.flag("norm_topk_prob", default=True),
        scaling=keys.number("routed_scaling_factor", 2.5),
        shared_inner=inner * keys.integer("n_shared_experts", 1),
    )
    check_routing(keys, experts)
    return experts


def read_v3(keys: Keys) -> Parts:
    """DeepSeek-V3, R1, and the text model of Kimi-K2 and K2.5."""
    parts = latent_parts(keys)
    keys.must_be("rope_interleave", True, None)
    experts = sigmoid_experts(keys, natural(keys, "first_k_dense_replace", 3))
    spare = natural(keys, "num_nextn_predict_layers")
    spare = max(spare, natural(keys, "num_mtp_layers"))
    return without_experts(replace(parts, experts=experts, spare_layers=spare))


def _read_v2(keys: Keys) -> Parts:
    parts = latent_parts(keys)
    for name in _TRAINING:
        keys.raw(name)
    keys.must_be("scoring_func", "softmax", None)
    keys.must_be("moe_layer_freq", 1, None)
    keys.must_be("norm_topk_prob", False, None)
    keys.must_be("topk_method", "greedy", "group_limited_greedy", None)
    limited = keys.raw("topk_method") == "group_limited_greedy"
    inner = keys.integer("moe_intermediate_size")
    groups, kept = natural(keys, "n_group", 1), natural(keys, "topk_group", 1)
    experts = ExpertSpec(
        layers=expert_layers(keys, natural(keys, "first_k_dense_replace")),
        count=expert_count(keys),
        active=keys.integer("num_experts_per_tok"),
        inner=inner,
        score="softmax",
        groups=groups if limited else 1,
        kept_groups=kept if limited else 1,
        scaling=keys.number("routed_scaling_factor", 1.0),
        shared_inner=inner * keys.integer("n_shared_experts", 2),
    )
    check_routing(keys, experts)
    return without_experts(replace(parts, experts=experts))


DEEPSEEK_V2 = Family(name="deepseek_v2", architectures=("DeepseekV2ForCausalLM",), read=_read_v2)
DEEPSEEK_V3 = Family(name="deepseek_v3", architectures=("DeepseekV3ForCausalLM",), read=read_v3)
