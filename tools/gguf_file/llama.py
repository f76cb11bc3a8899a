"""config.json and tensors of a Llama model from its GGUF file.

llama.cpp rotates neighbouring values of a query or key head, Hugging Face values half a head
apart; the rows of ``attn_q`` and ``attn_k`` were reordered for it, and are put back here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specbench.errors import CheckpointError
from tools.gguf_file.blocks import Array
from tools.gguf_file.reader import GgufFile

OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


def llama_config(file: GgufFile, dtype: str) -> dict[str, object]:
    """config.json with every size written out.

    Raises:
        CheckpointError: another architecture, scaled or partial rotations, or a missing key.
    """
    named = file.value("general.architecture", str)
    if named != "llama":
        raise CheckpointError(f"{file.path} is a {named} model.", expected="A llama model.")
    hidden, heads = _size(file, "embedding_length"), _size(file, "attention.head_count")
    head_dim = _size(file, "attention.key_length", hidden // heads)
    value_dim = _size(file, "attention.value_length", head_dim)
    rotated = _size(file, "rope.dimension_count", head_dim)
    scaled = [key for key in file.values if key.startswith("llama.rope.scaling.")]
    scaled += [name for name in file.tensors if name.startswith("rope_")]
    if scaled or rotated != head_dim or value_dim != head_dim:
        raise CheckpointError(
            f"{file.path} has {scaled or f'{rotated} of {head_dim} values rotated'}.",
            expected="Plain rotations of whole heads.",
        )
    if file.values.get("llama.expert_count"):
        raise CheckpointError(f"{file.path} is a mixture of experts.", expected="Dense layers.")
    ids = {
        f"{ours}_token_id": file.values[f"tokenizer.ggml.{theirs}_token_id"]
        for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
        if f"tokenizer.ggml.{theirs}_token_id" in file.values
    }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": _size(file, "feed_forward_length"),
        "num_hidden_layers": _size(file, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _size(file, "attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": _number(file, "attention.layer_norm_rms_epsilon"),
        "rope_theta": _number(file, "rope.freq_base", 10000.0),
        "rope_scaling": None,
        "max_position_embeddings": _size(file, "context_length"),
        "attention_bias": False,
        "mlp_bias": False,
        "vocab_size": len(file.value("tokenizer.ggml.tokens", list)),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **ids,
        "torch_dtype": dtype,
        "use_cache": True,
    }


def llama_tensors(file: GgufFile, config: dict[str, object]) -> Iterator[tuple[str, Array]]:
    """Every tensor in float32 by its Hugging Face name, one at a time.

    Raises:
        CheckpointError: a tensor that is not known; an ignored one could change the model.
    """
    layers, kv_heads = config["num_hidden_layers"], config["num_key_value_heads"]
    heads = config["num_attention_heads"]
    assert isinstance(layers, int)
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    names = dict(OUTER)
    for index in range(min(layers, len(file.tensors))):
        names |= {f"blk.{index}.{a}": f"model.layers.{index}.{b}" for a, b in LAYER.items()}
    if unknown := sorted(set(file.tensors) - set(names)):
        raise CheckpointError(
            f"{file.path} holds tensors that are not known: {', '.join(unknown[:8])}.",
            expected="Only tensors of plain Llama layers; an ignored one could change the model.",
        )
    for theirs in file.tensors:
        values = file.load(theirs)
        rotated = heads if theirs.endswith("attn_q.weight") else kv_heads
        if theirs.endswith(("attn_q.weight", "attn_k.weight")):
            if values.ndim != 2 or len(values) % (2 * rotated):
                raise CheckpointError(
                    f"{file.path}: {theirs} of shape {list(values.shape)} does not hold {rotated} "
                    "heads of an even width."
                )
            values = half_split(values, rotated)
        yield names[theirs], values


def half_split(weight: Array, heads: int) -> Array:
    """Rows of each head from pairs side by side to pairs half a head apart."""
    rows, width = weight.shape
    paired = weight.reshape(heads, rows // heads // 2, 2, width)
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(rows, width)


def _size(file: GgufFile, key: str, default: int | None = None) -> int:
    found: int = file.value(f"llama.{key}", int, default)
    if found < 1:
        raise CheckpointError(f"{file.path}: llama.{key} is {found}.", expected="1 or more.")
    return found


def _number(file: GgufFile, key: str, default: float | None = None) -> float:
    """A float32 of the file as the shortest decimal that gives it: 1e-05, not 9.99999974e-06."""
    return float(str(np.float32(file.value(f"llama.{key}", float, default))))
