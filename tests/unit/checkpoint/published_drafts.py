"""Key sets of drafts that people publish, with widths scaled down: facts of their config.json.

Each table holds the keys and the non-size values of a published file (named by ``source``); sizes
are those of ``tests.tiny``. ``kind`` is the draft whose tensors belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.drafts import KV_RANK, LLAMA3, NOPE, Q_RANK, ROPE, VALUE, YARN, Kind
from tests.tiny import TinyShape

SHAPE = TinyShape()
SIZES = {
    "hidden_size": SHAPE.hidden,
    "intermediate_size": SHAPE.inner,
    "num_hidden_layers": 1,
    "num_attention_heads": SHAPE.heads,
    "num_key_value_heads": SHAPE.kv_heads,
    "head_dim": SHAPE.head_dim,
    "rms_norm_eps": SHAPE.eps,
    "vocab_size": SHAPE.vocab,
}
OURS = {**SIZES, "draft_vocab_size": SHAPE.draft_vocab}
COMMON = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "initializer_range": 0.02, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.53.2", "use_cache": True,
}  # fmt: skip
QWEN = {"max_window_layers": 48, "use_sliding_window": False, "sliding_window": None,
        "rope_scaling": None, "rope_theta": 1000000.0, "max_position_embeddings": 2048}  # fmt: skip
IDS = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
MODELOPT = {
    **IDS, "use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True, "use_mtp_layernorm": False, "next_layer_regular": True,
    "parallel_draft_step": 1, "parallel_draft_heads_num_layers": None,
}  # fmt: skip
# What transformers up to 4.5x writes into every config, here null or at its default.
GENERATION = {
    "chunk_size_feed_forward": 0, "diversity_penalty": 0.0, "do_sample": False,
    "early_stopping": False, "encoder_no_repeat_ngram_size": 0, "forced_bos_token_id": None,
    "forced_eos_token_id": None, "id2label": {"0": "LABEL_0"}, "is_decoder": False,
    "is_encoder_decoder": False, "label2id": {"LABEL_0": 0}, "length_penalty": 1.0,
    "max_length": 20, "min_length": 0, "no_repeat_ngram_size": 0, "num_beam_groups": 1,
    "num_beams": 1, "num_return_sequences": 1, "output_attentions": False,
    "output_hidden_states": False, "output_scores": False, "pad_token_id": 3, "prefix": None,
    "pruned_heads": {}, "remove_invalid_values": False, "repetition_penalty": 1.0,
    "return_dict": True, "return_dict_in_generate": False, "sep_token_id": None,
    "temperature": 1.0, "tf_legacy_loss": False, "tie_encoder_decoder": False, "top_k": 50,
    "top_p": 1.0, "torchscript": False, "typical_p": 1.0, "use_bfloat16": False,
    "pretraining_tp": 1, "bad_words_ids": None, "suppress_tokens": None,
    "exponential_decay_length_penalty": None, "task_specific_params": None,
    "begin_suppress_tokens": None, "finetuning_task": None, "problem_type": None,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": KV_RANK, "q_lora_rank": Q_RANK, "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "aux_loss_alpha": 0.001, "ep_size": 1,
    "first_k_dense_replace": 1, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 1,
    "n_routed_experts": 384, "n_shared_experts": 1, "norm_topk_prob": True,
    "num_experts_per_tok": 8, "num_nextn_predict_layers": 0, "routed_scaling_factor": 2.827,
    "scoring_func": "sigmoid", "seq_aux": True, "topk_group": 1, "topk_method": "noaux_tc",
}  # fmt: skip
KIMI_YARN = {"beta_fast": 1.0, "beta_slow": 1.0, "factor": 64.0, "mscale": 1.0,
             "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
             "type": "yarn"}  # fmt: skip


def speculators(layer: dict[str, Any], **draft: Any) -> dict[str, Any]:
    """A config of speculators, with what its classes and transformers add at the top."""
    return {
        "architectures": ["Eagle3DraftModel"],
        "auto_map": {"": "config.Eagle3SpeculatorConfig"},
        "base_model_ep_plan": None,
        "draft_vocab_size": SHAPE.draft_vocab,
        "dtype": "bfloat16",
        "embed_requires_grad": False,
        "has_no_defaults_at_init": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {"accept_tolerance": 0.0, "proposal_type": "greedy", "speculative_tokens": 3,
                 "verifier_accept_k": 1}
            ],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "a/target"},
        },
        "speculators_model_type": "eagle3",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformers_version": "4.57.6",
        **draft,
        "transformer_layer_config": {
            **SIZES, "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
            "initializer_range": 0.02, "max_position_embeddings": 2048, "mlp_bias": False,
            "model_type": "llama", "pretraining_tp": 1, "rope_scaling": None,
            "rope_theta": 10000.0, "use_cache": True, **layer,
        },
    }  # fmt: skip


PLAIN = Kind(name="plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A config, the file it was taken from, and what it must be read as.

    ``says`` are fields of DraftSpec; ``refused`` is what a refusal must say instead. ``given`` are
    flags: many files name no layers.
    """

    source: str
    config: dict[str, Any]
    kind: Kind = PLAIN
    given: dict[str, Any] = field(default_factory=dict)
    says: dict[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    refused: str = ""


NONE_NAMED = {"capture_ids": (1, 2, 3)}
LLAMA_HEAD = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
PUBLISHED = (
    Published(
        source="SafeAILab/EAGLE: eagle/traineagle3/config.json",
        config={**OURS, "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
                "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02,
                "max_position_embeddings": 2048, "model_type": "llama", "pad_token_id": 0,
                "tie_word_embeddings": False, "torch_dtype": "float16",
                "transformers_version": "4.28.1", "use_cache": True},
        given=NONE_NAMED,
        says={"file_format": "safeailab"},
        caveats=("capture_ids", "config_default"),
    ),
    Published(
        source="sgl-project/SpecForge: configs/qwen3-30B-A3B-eagle3.1.json",
        config={**OURS, **COMMON, **QWEN, **LLAMA_HEAD, "fc_norm": True, "norm_output": True},
        kind=Kind(name="3.1", flags=("fc_norm", "norm_output")),
        given=NONE_NAMED,
        says={"fc_norm": True, "norm_output": True},
        caveats=("capture_ids",),
    ),
    Published(
        source="sgl-project/SpecForge: configs/kimi-k25-eagle3.json",
        config={**OURS, **COMMON, **QWEN, **LLAMA_HEAD, "mlp_bias": False, "pretraining_tp": 1,
                "dtype": "bfloat16", "eagle_config": {**IDS, "use_aux_hidden_state": True}},
        says={"capture_physical": (1, 2, 3), "file_format": "specforge"},
    ),
    Published(
        source="sgl-project/SpecForge: configs/kimi-k2-eagle3.json",
        config={**OURS, **COMMON, **QWEN, **LLAMA_HEAD, "model_type": "kimi_k2",
                "eagle_config": {**IDS, "use_aux_hidden_state": True}},
        says={"capture_physical": (1, 2, 3)},
    ),
    Published(
        source="sgl-project/SpecForge: configs/qwen2.5-7b-eagle3.json (a window that is not used)",
        config={**OURS, **COMMON, **QWEN, **LLAMA_HEAD, "sliding_window": 131072},
        given=NONE_NAMED,
        says={"context_limit": None},
        caveats=("capture_ids",),
    ),
    Published(
        source="sgl-project/SpecForge: configs/gpt-oss-20B-eagle3-dense.json",
        config={**OURS, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "gpt_oss",
                "eagle_config": IDS, "hidden_act": "silu", "num_local_experts": 16,
                "experts_per_token": 4, "max_position_embeddings": 4096, "pad_token_id": 0,
                "torch_dtype": "bfloat16", "use_cache": True},
        says={"capture_physical": (1, 2, 3)},
        caveats=("config_default",),
    ),
    Published(
        source="sgl-project/SpecForge: configs/qwen2-5-vl-eagle3.json (mrope)",
        config={**OURS, **COMMON, **QWEN, **LLAMA_HEAD, "sliding_window": 32768,
                "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
        given=NONE_NAMED,
        caveats=("mrope", "capture_ids"),
    ),
    Published(
        source="sgl-project/SpecForge: configs/qwen3-vl-235b-eagle3.json (interleaved mrope)",
        config={**OURS, **COMMON, **QWEN, **LLAMA_HEAD, "target_model_type": "qwen3_moe",
                "eagle_config": IDS,
                "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20],
                                 "rope_type": "default"}},
        caveats=("mrope",),
    ),
    Published(
        source="sgl-project/SpecForge: configs/llama3-70B-ealge3.json (scaled rotations)",
        config={**OURS, **COMMON, **LLAMA_HEAD, "rope_theta": 500000.0, "rope_scaling": LLAMA3,
                "max_position_embeddings": 4096, "eos_token_id": [1, 2, 3]},
        kind=Kind(name="llama3", scaling=LLAMA3),
        given=NONE_NAMED,
        caveats=("capture_ids",),
    ),
    Published(
        source="sgl-project/SpecForge: configs/phi4-mini-eagle3.json (tied, with a smaller head)",
        config={**OURS, **COMMON, **LLAMA_HEAD, "model_type": "phi3", "rope_theta": 10000.0,
                "max_position_embeddings": 131072, "tie_word_embeddings": True},
        given=NONE_NAMED,
        refused="tie_word_embeddings",
    ),
    Published(
        source="sgl-project/SpecForge: configs/minicpm-v4-eagle3.json (rotations by length)",
        config={**OURS, **COMMON, **LLAMA_HEAD, "target_model_type": "minicpm_v_4",
                "target_hidden_size": SHAPE.hidden,
                "rope_scaling": {"rope_type": "longrope", "factor": 1.0,
                                 "original_max_position_embeddings": 32768, "long_factor": [1.0],
                                 "short_factor": [1.0]}},
        given=NONE_NAMED,
        refused="'longrope' is not supported",
    ),
    Published(
        source="nebius/EAGLE3-gpt-oss-20b (two names of one size, yarn)",
        config={**OURS, **COMMON, **LLAMA_HEAD, "truncated_vocab_size": SHAPE.draft_vocab,
                "rope_theta": 150000, "max_position_embeddings": 4096,
                "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                                 "original_max_position_embeddings": 4096, "rope_type": "yarn",
                                 "truncate": False}},
        kind=Kind(name="yarn", scaling=YARN),
        given=NONE_NAMED,
        caveats=("capture_ids",),
    ),
    Published(
        source="NVIDIA/Model-Optimizer: llama_eagle_template_config of hf_spec_export",
        config={**OURS, **COMMON, **LLAMA_HEAD, "pad_token_id": None, "mlp_bias": False,
                "pretraining_tp": 1, "rope_theta": 500000.0, "rope_scaling": LLAMA3,
                "max_position_embeddings": 4096, "eagle_config": MODELOPT},
        kind=Kind(name="llama3", scaling=LLAMA3),
        says={"file_format": "nvidia", "capture_physical": (1, 2, 3)},
    ),
    Published(
        source="NVIDIA/Model-Optimizer: kimik2_eagle_template_config of hf_spec_export",
        config={**OURS, **COMMON, **GENERATION, **LATENT, "model_type": "kimi_k2",
                "architectures": ["Eagle3DeepseekV2ForCausalLM"], "rope_theta": 50000.0,
                "max_position_embeddings": 262144, "rope_scaling": KIMI_YARN,
                "_attn_implementation": "eager", "eagle_config": MODELOPT},
        kind=Kind(name="latent", latent=True),
        says={"file_format": "nvidia", "capture_physical": (1, 2, 3)},
    ),
    Published(
        source="torchspec-project/TorchSpec: configs/draft_models/qwen3_8b_eagle3_mla.json",
        config={**OURS, **{k: LATENT[k] for k in ("kv_lora_rank", "q_lora_rank", "v_head_dim",
                                                  "qk_nope_head_dim", "qk_rope_head_dim")},
                "architectures": ["DeepSeekForCausalLMEagle3"], "model_type": "deepseek_v3",
                "hidden_act": "silu", "max_position_embeddings": 262144, "rope_theta": 1000000,
                "rope_scaling": KIMI_YARN, "pretraining_tp": 1, "pad_token_id": 0},
        kind=Kind(name="latent", latent=True),
        given=NONE_NAMED,
        caveats=("capture_ids",),
    ),
    Published(
        source="speculators 0.3, as NVIDIA's converter for vLLM writes it",
        config={**speculators({}, norm_before_residual=True, speculators_version="0.3.0",
                              eagle_aux_hidden_state_layer_ids=[0, 1, 2]),
                "architectures": ["Eagle3Speculator"],
                "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"}},
        kind=Kind(name="residual", flags=("norm_before_residual",)),
        says={"file_format": "speculators", "capture_physical": (1, 2, 3),
              "norm_before_residual": True},
    ),
    Published(
        source="speculators 0.8, a Qwen3-235B draft of a public issue (a window, four norm flags)",
        config=speculators(
            {"layer_types": ["sliding_attention"], "sliding_window": 1024,
             "use_sliding_window": True},
            norm_before_residual=True, norm_before_fc=True, norm_output=True, fc_norm=False,
            speculators_version="0.8.0.dev0", eagle_aux_hidden_state_layer_ids=[1, 2, 3],
        ),
        kind=Kind(name="flags", flags=("norm_before_residual", "norm_before_fc", "norm_output")),
        says={"context_limit": 1024, "longest": 1024, "capture_physical": (1, 2, 3),
              "norm_before_fc": True, "norm_output": True},
        caveats=("draft_window",),
    ),
    Published(
        source="speculators --draft-arch qwen3 (normed heads)",
        config=speculators({"model_type": "qwen3"}, norm_before_residual=False,
                           speculators_version="0.9.0",
                           eagle_aux_hidden_state_layer_ids=[1, 2, 3]),
        kind=Kind(name="normed heads", head_norm=True),
        says={"head_norm": True, "stacked": True},
    ),
    Published(
        source="speculators without norm_before_residual (three readers, three defaults)",
        config=speculators({}, speculators_version="0.5.0",
                           eagle_aux_hidden_state_layer_ids=[1, 2, 3]),
        refused="norm_before_residual is absent",
    ),
)  # fmt: skip
