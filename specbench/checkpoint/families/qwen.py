"""Qwen2 and 2.5 (biases on q, k and v), Qwen3 (normed heads), Qwen3-MoE (softmax router)."""

from __future__ import annotations

from specbench.checkpoint.families.base import (
    MOST_LAYERS,
    Family,
    Parts,
    check_routing,
    expert_count,
    expert_layers,
    natural,
    plain_weights,
    windows,
    without_experts,
)
from specbench.checkpoint.keys import Keys, shown
from specbench.checkpoint.layer_rules import head_shape
from specbench.checkpoint.rope import read_rope
from specbench.errors import CheckpointError
from specbench.modelspec import AttentionSpec, ExpertSpec

HEAD_DIM = 128  # Qwen3Config's default; Qwen3-MoE's is hidden / heads


def _windows(keys: Keys, first: int) -> tuple[int | None, ...]:
    """Layers from ``first`` on slide, and only when use_sliding_window says so."""
    if not keys.flag("use_sliding_window", default=False):
        keys.raw("sliding_window")
        keys.must_be(
            "layer_types",
            None,
            ["full_attention"] * min(keys.integer("num_hidden_layers"), MOST_LAYERS),
        )
        return ()
    return windows(keys, lambda layer: layer >= first)


def _qwen2(keys: Keys) -> Parts:
    shape = head_shape(keys)
    plain_weights(keys)
    keys.must_be("attention_bias", True, None)
    attention = AttentionSpec(
        qkv_bias=True, windows=_windows(keys, natural(keys, "max_window_layers", 28))
    )
    return Parts(shape=shape, rope=read_rope(keys, shape.head_dim), attention=attention)


def _qwen3(keys: Keys) -> Parts:
    shape = head_shape(keys, head_dim=HEAD_DIM)
    plain_weights(keys)
    bias = keys.flag("attention_bias", default=False)
    attention = AttentionSpec(
        qkv_bias=bias,
        out_bias=bias,
        head_norm=True,
        windows=_windows(keys, natural(keys, "max_window_layers", 28)),
    )
    return Parts(shape=shape, rope=read_rope(keys, shape.head_dim), attention=attention)


def _qwen3_moe(keys: Keys) -> Parts:
    shape = head_shape(keys)
    plain_weights(keys)
    bias = keys.flag("attention_bias", default=False)
    keys.raw("max_window_layers")  # all layers slide, or none
    attention = AttentionSpec(
        qkv_bias=bias, out_bias=bias, head_norm=True, windows=_windows(keys, 0)
    )
    for name in ("output_router_logits", "router_aux_loss_coef"):
        keys.raw(name)  # training only
    experts = ExpertSpec(
        layers=_sparse_layers(keys),
        count=expert_count(keys),
        active=keys.integer("num_experts_per_tok"),
        inner=keys.integer("moe_intermediate_size"),
        score="softmax",
        normalise=keys.flag("norm_topk_prob", default=False),
    )
    check_routing(keys, experts)
    return without_experts(
        Parts(
            shape=shape, rope=read_rope(keys, shape.head_dim), attention=attention, experts=experts
        )
    )


def _sparse_layers(keys: Keys) -> tuple[int, ...]:
    step, dense = keys.integer("decoder_sparse_step", 1), keys.raw("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(i) is int for i in dense):
        raise CheckpointError(
            f"{keys.source}: mlp_only_layers={shown(dense)}.", expected="A list of layer numbers."
        )
    return tuple(i for i in expert_layers(keys, 0) if i not in dense and (i + 1) % step == 0)


QWEN2 = Family(name="qwen2", architectures=("Qwen2ForCausalLM",), read=_qwen2)
QWEN3 = Family(name="qwen3", architectures=("Qwen3ForCausalLM",), read=_qwen3)
QWEN3_MOE = Family(name="qwen3_moe", architectures=("Qwen3MoeForCausalLM",), read=_qwen3_moe)
