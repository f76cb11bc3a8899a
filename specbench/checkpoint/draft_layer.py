"""What a draft's config and tensor names say of its layers: sizes, attention's extras, window."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.checkpoint.folder import Folder
from specbench.checkpoint.keys import Keys
from specbench.checkpoint.latent import MARK, latent_shape
from specbench.checkpoint.layer_rules import common_rules, head_shape, sliding_window
from specbench.checkpoint.rope import read_rope
from specbench.modelspec import LatentShape, LayerShape, RopeSpec

QWEN3_HEAD_DIM = 128  # Qwen3Config's default, where the config names none
# Left in a draft's config by its target; a draft's MLP is dense, and its tensors are checked by
# name.
_OF_EXPERTS = (
    *("n_routed_experts", "n_shared_experts", "moe_intermediate_size", "moe_layer_freq"),
    *("first_k_dense_replace", "num_experts_per_tok", "norm_topk_prob", "n_group", "topk_group"),
    *("topk_method", "scoring_func", "routed_scaling_factor", "aux_loss_alpha", "seq_aux"),
    *("ep_size", "num_nextn_predict_layers", "num_experts", "num_local_experts"),
    *("experts_per_token", "decoder_sparse_step", "mlp_only_layers", "router_aux_loss_coef"),
    *("output_router_logits", "shared_expert_intermediate_size"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRead:
    """The layer of a draft; fields as in ``DraftSpec``."""

    shape: LayerShape
    rope: RopeSpec
    latent: LatentShape | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    head_norm: bool = False
    context_limit: int | None = None


def read_layer(keys: Keys, folder: Folder, *, nested: bool) -> LayerRead:
    """The layer that ``keys`` describe, for tensors under canonical names.

    ``nested`` says that the table is a Hugging Face config of the layer alone, whose ``model_type``
    names its class: speculators builds Qwen3's layer, with normed heads, for ``qwen3``. In a flat
    config ``model_type`` is often the target's and says nothing; the tensors decide.

    Raises:
        CheckpointError: a size is missing or does not divide, or a part is not supported.
    """
    for name in _OF_EXPERTS:
        keys.raw(name)
    common_rules(keys)
    window = sliding_window(keys)
    if window is not None:
        keys.note(
            "draft_window",
            f"{keys.source}: a sliding window of {window} tokens; up to that length it is full "
            "attention, which is what runs",
        )
    if MARK in folder.tensors:
        shape, latent = latent_shape(keys)
        return LayerRead(
            shape=shape,
            latent=latent,
            rope=read_rope(keys, latent.rope, part_of_head=True),
            context_limit=window,
        )
    qwen3 = nested and keys.raw("model_type") == "qwen3"
    shape = head_shape(keys, head_dim=QWEN3_HEAD_DIM if qwen3 else None)
    at, bias = "midlayer.self_attn", keys.flag("attention_bias", default=False)
    return LayerRead(
        shape=shape,
        rope=read_rope(keys, shape.head_dim),
        qkv_bias=bias,
        out_bias=bias and f"{at}.o_proj.bias" in folder.tensors,
        head_norm=qwen3 or f"{at}.q_norm.weight" in folder.tensors,
        context_limit=window,
    )
