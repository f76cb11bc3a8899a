"""The Hugging Face config of a draft's layers, written from its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.checkpoint.layer_rules import SLIDING
from specbench.checkpoint.rope import PLAIN
from specbench.modelspec import DraftSpec


def layer_config(spec: DraftSpec, source: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes, rope and dtype; every value is written out, so that no reader takes a default.

    ``source`` is the table of the draft's own config with Llama's keys; the scaling of its
    rotations is copied as it is.
    """
    shape = spec.shape
    config: dict[str, Any] = {
        "model_type": _model_type(spec),
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": spec.rope.theta,
        "rope_scaling": scaling_table(source),
        "max_position_embeddings": spec.rope.max_position,
        "vocab_size": spec.vocab,
        "attention_bias": spec.qkv_bias,
        "torch_dtype": spec.dtype,
    }
    if spec.fc_bias:
        config["bias"] = True
    if spec.context_limit is not None:
        config |= {
            "layer_types": [SLIDING] * spec.n_layers,
            "sliding_window": spec.context_limit,
            "use_sliding_window": True,
        }
    if spec.latent is None:
        return {**config, "head_dim": shape.head_dim, "mlp_bias": False}
    return {
        **config,
        "q_lora_rank": spec.latent.q_rank or None,
        "kv_lora_rank": spec.latent.kv_rank,
        "qk_nope_head_dim": spec.latent.nope,
        "qk_rope_head_dim": spec.latent.rope,
        "v_head_dim": spec.latent.value,
        "rope_interleave": True,
    }


def _model_type(spec: DraftSpec) -> str:
    """The class whose layer it is; speculators and vLLM build the layer that this names."""
    if spec.latent is not None:
        return "deepseek_v3"
    return "qwen3" if spec.head_norm else "llama"


def scaling_table(table: Mapping[str, Any]) -> dict[str, Any] | None:
    """``rope_scaling`` of a config in either spelling, as it stands there, under that name.

    The base stands beside it (``rope_theta``), where every engine looks for it.
    """
    found = table.get("rope_parameters") or table.get("rope_scaling") or {}
    scaling = {name: value for name, value in found.items() if name != "rope_theta"}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if set(scaling) <= {"rope_type", "type"} and kind in PLAIN:
        return None
    return {**scaling, "rope_type": kind}
