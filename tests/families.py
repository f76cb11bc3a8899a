"""Tiny random models of every family, written by transformers, and our reading of them."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specbench.checkpoint import read_target
from specbench.config import SpecConfig
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.kv_cache import KVPool
from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.layers import Rope
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.weights import load_tensors
from specbench.engine.runner import TargetRunner
from specbench.modelspec import TargetSpec
from tests.tiny import write_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 288, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 8.0,
        "original_max_position_embeddings": 64}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}
DEEP_YARN = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 16, "beta_slow": 2}
LATENT: dict[str, Any] = {
    **SIZES, "num_key_value_heads": 4, "kv_lora_rank": 24, "q_lora_rank": 40,
    "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28, "n_routed_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "rope_parameters": DEEP_YARN,
}  # fmt: skip
V3: dict[str, Any] = {**LATENT, "n_group": 4, "topk_group": 2, "num_mtp_layers": 0}
QWEN_MOE: dict[str, Any] = {
    **SIZES, "head_dim": 24, "num_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 40, "norm_topk_prob": True, "mlp_only_layers": [1],
}  # fmt: skip
GPT_OSS: dict[str, Any] = {
    **SIZES, "head_dim": 24, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 5,
    "rope_parameters": {**YARN, "truncate": False},
}  # fmt: skip
# name: transformers class, its config, arguments
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3": ("Llama", {**SIZES, "rope_parameters": LLAMA3}),
    "llama linear": ("Llama", {**SIZES, "rope_parameters": LINEAR}),
    "llama yarn": ("Llama", {**SIZES, "rope_parameters": YARN, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", SIZES),
    "qwen2 sliding": (
        "Qwen2",
        {**SIZES, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2},
    ),
    "qwen3": ("Qwen3", {**SIZES, "head_dim": 24, "tie_word_embeddings": True}),
    "qwen3 biased, yarn": (
        "Qwen3", {**SIZES, "head_dim": 24, "attention_bias": True, "rope_parameters": YARN}
    ),
    "qwen3_moe": ("Qwen3Moe", QWEN_MOE),
    "qwen3_moe raw weights, sparse step": (
        "Qwen3Moe",
        {**QWEN_MOE, "norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": []},
    ),
    "deepseek_v2": ("DeepseekV2", {**LATENT, "routed_scaling_factor": 1.7}),
    "deepseek_v2 groups, direct queries": (
        "DeepseekV2",
        {**LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy", "n_group": 4,
         "topk_group": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
    ),
    "deepseek_v3": ("DeepseekV3", V3),
    "deepseek_v3 one group, raw weights": (
        "DeepseekV3", {**V3, "n_group": 1, "topk_group": 1, "norm_topk_prob": False}
    ),
    "glm_moe_dsa": (
        "GlmMoeDsa",
        {**LATENT, "n_group": 1, "topk_group": 1, "index_topk": 64, "index_head_dim": 24,
         "index_n_heads": 2, "indexer_types": ["full", "shared", "full", "full"],
         "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
    ),
    "gpt_oss": ("GptOss", GPT_OSS),
    "gpt_oss window shorter than a tree, tight clamp": (
        "GptOss", {**GPT_OSS, "sliding_window": 2, "swiglu_limit": 0.8, "swiglu_alpha": 1.3}
    ),
}  # fmt: skip


@functools.cache
def _holder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@functools.cache
def written(name: str) -> tuple[Path, Any]:
    """Folder of a random model, and the transformers model itself, in float32."""
    import transformers

    kind, arguments = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**arguments, attn_implementation="eager")
    torch.manual_seed(len(name))
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    randomise(model)
    folder = Path(_holder().name) / name.replace(" ", "_").replace(",", "")
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder, model


def randomise(model: torch.nn.Module) -> None:
    """Weights large enough that a wrong rule is seen: nothing stays at its initial 0 or 1."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if "inv_freq" in name:
                continue
            noise = torch.randn(value.shape, generator=generator)
            if "e_score_correction_bias" in name:
                value.copy_(0.2 * noise)
            elif value.dim() == 1:
                value.copy_((1.0 if "norm" in name and "bias" not in name else 0.0) + 0.2 * noise)
            else:
                value.copy_(noise * (1.0 if "embed" in name else 1.3 * value.shape[-1] ** -0.5))


@dataclass(slots=True)
class Loaded:
    """One of ours: target, and a runner over a pool of its own for any configuration."""

    spec: TargetSpec
    target: LlamaTarget | DecoderTarget
    dtype: torch.dtype

    def pool(self, lanes: int = 2) -> KVPool:
        heads, key, value = self.spec.cache_shape
        return KVPool(
            layers=self.spec.n_layers, lanes=lanes, kv_heads=heads, head_dim=key, value_dim=value,
            capacity=128, dtype=self.dtype, device=torch.device("cpu"),
        )  # fmt: skip

    def runner(self, pool: KVPool, spec: SpecConfig | None = None) -> TargetRunner:
        eager = Graphs(torch.device("cpu"), GraphMode.EAGER)
        rope = Rope(
            self.spec.rope, self.spec.shape.head_dim, pool.capacity, self.dtype, pool.device
        )
        return TargetRunner(self.target, pool, rope, spec or SpecConfig.baseline(), eager)


def load(folder: Path, dtype: torch.dtype) -> Loaded:
    """Read a folder as the engine does, capturing every layer."""
    spec, opened = read_target(folder)
    tensors = load_tensors(opened, dtype, torch.device("cpu"))
    capture = tuple(range(spec.n_layers + 1))
    kind = LlamaTarget if spec.plain else DecoderTarget
    return Loaded(spec, kind(spec, tensors, capture), dtype)
