"""The Hugging Face config of a draft's layers, written from its spec."""

from __future__ import annotations

from typing import Any

from specbench.modelspec import DraftSpec


def layer_config(spec: DraftSpec) -> dict[str, Any]:
    """Sizes, rope and dtype; every value is written out, so that no reader takes a default."""
    shape, latent = spec.shape, spec.latent
    config: dict[str, Any] = {
        "model_type": "llama" if latent is None else "deepseek_v3",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": spec.rope.theta,
        "max_position_embeddings": spec.rope.max_position,
        "vocab_size": spec.vocab,
        "attention_bias": False,
        "torch_dtype": spec.dtype,
    }
    if latent is None:
        return {**config, "head_dim": shape.head_dim, "mlp_bias": False}
    return {
        **config,
        "q_lora_rank": latent.q_rank,
        "kv_lora_rank": latent.kv_rank,
        "qk_nope_head_dim": latent.nope,
        "qk_rope_head_dim": latent.rope,
        "v_head_dim": latent.value,
        "rope_interleave": True,
    }
