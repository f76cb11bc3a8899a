"""GLM-5 (GlmMoeDsa): DeepSeek-V3's layer behind a sparse-attention indexer (engine-spec 12.5).

The indexer lets a token attend to its ``index_topk`` best columns. Up to that many columns it
chooses all of them, so the model is dense there; that is the context served, and the indexer's
own tensors are not needed.
"""

from __future__ import annotations

from dataclasses import replace

from specbench.checkpoint.families.base import MOST_LAYERS, Family, Parts, natural
from specbench.checkpoint.families.deepseek import latent_parts, sigmoid_experts
from specbench.checkpoint.keys import Keys, shown
from specbench.errors import CheckpointError

_INDEXER = (
    *("index_head_dim", "index_n_heads", "indexer_types", "index_topk_freq"),
    *("index_topk_pattern", "index_skip_topk_offset", "indexer_rope_interleave"),
)


def _read(keys: Keys) -> Parts:
    parts = latent_parts(keys)
    for name in _INDEXER:
        keys.raw(name)
    layers = keys.integer("num_hidden_layers")
    keys.must_be("layer_types", None, ["indexed_attention"] * min(layers, MOST_LAYERS))
    keys.must_be("rope_interleave", True, None)
    limit = keys.integer("index_topk", 2048)
    keys.note(
        "context_limit",
        f"{keys.source}: served up to index_topk={limit} tokens, where sparse attention is dense",
    )
    return replace(
        parts,
        experts=sigmoid_experts(keys, _first_dense(keys, layers)),
        context_limit=limit,
        spare_layers=natural(keys, "num_nextn_predict_layers"),
        aside=(".self_attn.indexer.",),
    )


def _first_dense(keys: Keys, layers: int) -> int:
    """Dense layers in front, from mlp_layer_types where it is given."""
    first, kinds = natural(keys, "first_k_dense_replace", 3), keys.raw("mlp_layer_types")
    if kinds is None:
        return first
    dense = kinds.count("dense") if isinstance(kinds, list) else 0
    if (
        not isinstance(kinds, list)
        or len(kinds) != layers
        or kinds != ["dense"] * dense + ["sparse"] * (layers - dense)
    ):
        raise CheckpointError(
            f"{keys.source}: mlp_layer_types={shown(kinds)}.",
            expected=f"dense layers, then sparse ones, {layers} in all.",
        )
    return dense


GLM_DSA = Family(name="glm_moe_dsa", architectures=("GlmMoeDsaForCausalLM",), read=_read)
