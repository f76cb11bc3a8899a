"""A target checkpoint as a TargetSpec: Llama now, other families beside it later."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from specbench.checkpoint.folder import Folder, open_folder, read_json
from specbench.checkpoint.keys import (
    Keys,
    check_tensors,
    dtype_name,
    layer_shape,
    layer_tensors,
    rope,
)
from specbench.errors import CheckpointError
from specbench.modelspec import TargetSpec

# Older exports carry this buffer; it follows from rope_theta and is recomputed.
_INV_FREQ = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def read_target(path: Path | str) -> tuple[TargetSpec, Folder]:
    """Read and check a target folder; no weights are loaded.

    Raises:
        CheckpointError: unknown architecture or key, or tensors that do not fit the config.
    """
    folder = open_folder(path)
    architectures = folder.config.get("architectures") or ["LlamaForCausalLM"]
    if architectures != ["LlamaForCausalLM"]:
        raise CheckpointError(
            f"{folder.path} is a {architectures} model.", expected="LlamaForCausalLM."
        )
    return _llama(folder), folder


def _llama(folder: Folder) -> TargetSpec:
    keys = Keys(folder.config, folder.path / "config.json")
    shape, n_layers, vocab = (
        layer_shape(keys),
        keys.integer("num_hidden_layers"),
        keys.integer("vocab_size"),
    )
    tied = keys.flag("tie_word_embeddings", default=False)
    spec_rope = rope(keys)
    keys.done()
    expected: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, shape.hidden),
        "model.norm.weight": (shape.hidden,),
    }
    # one more than the file can hold is enough to name what is missing
    for index in range(min(n_layers, len(folder.tensors) + 1)):
        expected |= layer_tensors(f"model.layers.{index}", shape, shape.hidden)
    if not tied:
        expected["lm_head.weight"] = (vocab, shape.hidden)
    tensors = {n: e for n, e in folder.tensors.items() if not _INV_FREQ.fullmatch(n)}
    check_tensors(folder.path, tensors, expected, {})
    bos = folder.config.get("bos_token_id")
    return TargetSpec(
        family="llama",
        n_layers=n_layers,
        vocab=vocab,
        shape=shape,
        rope=spec_rope,
        tied=tied,
        dtype=dtype_name(tensors, "model.embed_tokens.weight"),
        eos_ids=_stop_ids(folder, vocab),
        bos_id=bos if isinstance(bos, int) else None,
        caveats=tuple(keys.caveats),
    )


def _stop_ids(folder: Folder, vocab: int) -> tuple[int, ...]:
    """EOS ids: generation_config.json when it names them, else config.json (as in HF)."""
    generation = folder.path / "generation_config.json"
    named: Any = read_json(generation).get("eos_token_id") if generation.exists() else None
    if named is None:
        named = folder.config.get("eos_token_id")
    ids = named if isinstance(named, list) else [] if named is None else [named]
    for value in ids:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab:
            raise CheckpointError(
                f"{folder.path}: eos_token_id {value!r} in a vocabulary of {vocab}.",
                expected="Ids of the vocabulary.",
            )
    return tuple(ids)
