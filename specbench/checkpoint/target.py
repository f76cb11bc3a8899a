"""A target checkpoint as a TargetSpec: the family that its ``architectures`` names reads it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from specbench.checkpoint.families import FAMILIES, Family, Parts
from specbench.checkpoint.folder import Folder, open_folder, read_json
from specbench.checkpoint.keys import Keys, check_tensors, dtype_name, shown
from specbench.checkpoint.target_tensors import target_tensors
from specbench.errors import CheckpointError, UnsupportedError
from specbench.modelspec import TargetSpec

# Older exports carry this buffer; it follows from rope_theta and is recomputed.
_INV_FREQ = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_EMBEDDING = "model.embed_tokens.weight"


def read_target(path: Path | str) -> tuple[TargetSpec, Folder]:
    """Read and check a target folder; no weights are loaded.

    Returns:
        The spec, and the folder with exactly the tensors that the forward reads, by the names that
        a bare model has (each entry still knows its name in the file).

    Raises:
        CheckpointError: unknown architecture or key, or tensors that do not fit the config.
    """
    folder = open_folder(path)
    family = _family(folder)
    told: tuple[str, ...] = ()
    if family.unwrap is not None:
        folder, told = family.unwrap(folder)
    keys = Keys(folder.config, folder.path / "config.json")
    for text in told:
        keys.note("not_served", f"{folder.path}: {text}")
    spec, parts = _spec(folder, family, keys)
    # more than the file can hold is enough to name what is missing
    expected = target_tensors(spec, len(folder.tensors))
    tensors = _served(folder, spec, parts, keys)
    check_tensors(folder.path, tensors, expected, {})
    dtype = dtype_name(tensors, _EMBEDDING)
    spec = replace(spec, dtype=dtype, caveats=tuple(keys.caveats))
    return spec, replace(folder, tensors=tensors)


def _family(folder: Folder) -> Family:
    named = folder.config.get("architectures") or ["LlamaForCausalLM"]
    for family in FAMILIES:
        if isinstance(named, list) and len(named) == 1 and named[0] in family.architectures:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.architectures)
    raise UnsupportedError(
        f"{folder.path} is a {str(named)[:200]} model.", expected=f"One of {known}."
    )


def _spec(folder: Folder, family: Family, keys: Keys) -> tuple[TargetSpec, Parts]:
    parts = family.read(keys)
    n_layers, vocab = keys.integer("num_hidden_layers"), keys.integer("vocab_size")
    tied = keys.flag("tie_word_embeddings", default=False)
    keys.done()
    bos = folder.config.get("bos_token_id")
    spec = TargetSpec(
        family=family.name,
        n_layers=n_layers,
        vocab=vocab,
        shape=parts.shape,
        rope=parts.rope,
        tied=tied,
        dtype="",
        attention=parts.attention,
        experts=parts.experts,
        context_limit=parts.context_limit,
        eos_ids=_stop_ids(folder, vocab),
        bos_id=bos if isinstance(bos, int) else None,
    )
    return spec, parts


def _served(folder: Folder, spec: TargetSpec, parts: Parts, keys: Keys) -> dict[str, Any]:
    """The tensors without those that this forward needs not; what was left out is noted."""
    spare = tuple(
        f"model.layers.{index}."
        for index in range(spec.n_layers, spec.n_layers + min(parts.spare_layers, 64))
    )
    left = [name for name in folder.tensors if spare and name.startswith(spare)]
    if left:
        keys.note(
            "not_served",
            f"{folder.path}: {len(left)} tensors of the layers for multi-token prediction are not "
            "loaded",
        )
    aside = [n for n in folder.tensors if any(part in n for part in parts.aside)]
    gone = {*left, *aside, *(n for n in folder.tensors if _INV_FREQ.fullmatch(n))}
    return {name: entry for name, entry in folder.tensors.items() if name not in gone}


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
                f"{folder.path}: eos_token_id {shown(value)} in a vocabulary of {vocab}.",
                expected="Ids of the vocabulary.",
            )
    return tuple(ids)
