"""gpt-oss: attention sinks, alternating sliding windows, biases, clamped SwiGLU experts."""

from __future__ import annotations

from specbench.checkpoint.families.base import (
    Family,
    Parts,
    check_routing,
    expert_count,
    expert_layers,
    plain_weights,
    windows,
)
from specbench.checkpoint.keys import Keys
from specbench.checkpoint.layer_rules import head_shape
from specbench.checkpoint.rope import read_rope
from specbench.modelspec import AttentionSpec, ExpertSpec

_TRAINING = ("output_router_logits", "router_aux_loss_coef", "initial_context_length")


def _read(keys: Keys) -> Parts:
    shape = head_shape(keys, head_dim=64)
    plain_weights(
        keys,
        todo="The published weights are MXFP4. Load them with transformers, dequantised "
        "(Mxfp4Config(dequantize=True)), in bfloat16, save_pretrained, and point here to that.",
    )
    bias = keys.flag("attention_bias", default=True)
    for name in _TRAINING:
        keys.raw(name)
    keys.raw("experts_per_token")  # num_experts_per_tok, written twice
    attention = AttentionSpec(
        qkv_bias=bias,
        out_bias=bias,
        sinks=True,
        windows=windows(keys, lambda layer: layer % 2 == 0),
    )
    experts = ExpertSpec(
        layers=expert_layers(keys, 0),
        count=expert_count(keys),
        active=keys.integer("num_experts_per_tok"),
        inner=shape.inner,
        score="softmax_chosen",
        clamp=(keys.number("swiglu_alpha", 1.702), keys.number("swiglu_limit", 7.0)),
    )
    check_routing(keys, experts)
    rope = read_rope(keys, shape.head_dim, theta=150000.0)
    return Parts(shape=shape, rope=rope, attention=attention, experts=experts)


GPT_OSS = Family(name="gpt_oss", architectures=("GptOssForCausalLM",), read=_read)
