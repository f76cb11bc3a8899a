"""A tiny Llama model as a GGUF file, for the tests that convert it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.unit.tools.gguf_writer import write_gguf

HIDDEN, HEADS, KV, HEAD_DIM, INNER, LAYERS = 32, 4, 2, 8, 64, 2
Arrays = dict[str, tuple[npt.NDArray[np.float32], int]]


def bytes_of_bpe() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def values_of() -> dict[str, Any]:
    tokens = ["<|end|>", "<|start|>", *bytes_of_bpe(), "he", "ll", "hell", "hello"]
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100000.0,
        "llama.rope.dimension_count": HEAD_DIM,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (len(tokens) - 2)],
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "hell o"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}<|start|>{{ m.content }}{% endfor %}",
    }


def original() -> dict[str, npt.NDArray[np.float32]]:
    """Weights as Hugging Face has them, by ggml's names."""
    rng = np.random.default_rng(1)
    sizes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(values_of()["tokenizer.ggml.tokens"]), HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        q, kv = HEADS * HEAD_DIM, KV * HEAD_DIM
        sizes |= {
            f"blk.{layer}.{name}": size
            for name, size in {
                "attn_norm.weight": (HIDDEN,),
                "ffn_norm.weight": (HIDDEN,),
                "attn_q.weight": (q, HIDDEN),
                "attn_k.weight": (kv, HIDDEN),
                "attn_v.weight": (kv, HIDDEN),
                "attn_output.weight": (HIDDEN, q),
                "ffn_gate.weight": (INNER, HIDDEN),
                "ffn_up.weight": (INNER, HIDDEN),
                "ffn_down.weight": (HIDDEN, INNER),
            }.items()
        }
    return {n: rng.normal(0, 0.1, size).astype(np.float32) for n, size in sizes.items()}


def as_llama_cpp(name: str, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What its convert script does to queries and keys: halves of a head become neighbours."""
    heads = {"attn_q.weight": HEADS, "attn_k.weight": KV}.get(name.split(".", 2)[-1])
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, HEAD_DIM // 2, HIDDEN)
    return np.ascontiguousarray(np.swapaxes(halves, 1, 2)).reshape(weight.shape)


def write_tiny(
    path: Path, values: dict[str, Any] | None = None, more: Arrays | None = None, kind: int = 0
) -> Path:
    tensors = {
        name: (as_llama_cpp(name, weight), kind if weight.ndim == 2 else 0)
        for name, weight in original().items()
    }
    write_gguf(path, {**values_of(), **(values or {})}, {**tensors, **(more or {})})
    return path
