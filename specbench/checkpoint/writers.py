"""A draft written again in another format, with layer ids that a named engine reads rightly.

What a format or an engine cannot express is an error; nothing is dropped in silence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specbench.checkpoint.capture import MARKER
from specbench.checkpoint.conventions import find, to_written
from specbench.checkpoint.folder import Folder
from specbench.checkpoint.formats import IDS
from specbench.checkpoint.headers import read_array
from specbench.checkpoint.id_rules import NESTED, IdRule
from specbench.checkpoint.layer_config import layer_config
from specbench.checkpoint.layouts import Layout, check_engine, check_layout, engine_notes
from specbench.checkpoint.raw_copy import write_tensors
from specbench.checkpoint.vocab_map import DIRECT
from specbench.errors import CheckpointError, OutputError
from specbench.journal import replacing
from specbench.modelspec import DraftSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: the ids, where they stand in config.json, and what to know."""

    ids: tuple[int, ...]
    key: str
    notes: tuple[str, ...]


def write_draft(
    spec: DraftSpec,
    folder: Folder,
    out: Path,
    *,
    layout: str,
    engine: str = "",
    arch: str = "",
    layers: int,
    drop_ids: bool = False,
) -> Written:
    """Write config.json and model.safetensors to ``out``, a new or empty folder.

    Args:
        spec: the draft, from ``read_draft``.
        folder: its folder, from ``read_draft``.
        out: where to; config.json is written last.
        layout: a key of ``layouts.LAYOUTS``.
        engine: ``code==version`` that will read it; empty for the format's own code base.
        arch: the target's class, which changes SGLang's rule.
        layers: the target's number of layers.
        drop_ids: write no ids where the format has no place for them.

    Raises:
        CheckpointError: the format or the engine cannot express the draft.
        OutputError: ``out`` holds something, or cannot be written.
    """
    place = check_layout(spec, layout)
    rule = find(engine or place.code, arch)
    check_engine(spec, rule, engine, place)
    ids, key, notes = _ids(spec, layout, place, rule, engine, layers, drop_ids)
    config = _config(spec, folder, layout, place)
    _put_ids(config, spec, ids, key, engine)
    names = {_file_name(name, spec, place): entry for name, entry in folder.tensors.items()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise OutputError(f"{out} is not empty.", todo="Name a new folder.")
        write_tensors(out / "model.safetensors", names, _offsets(spec, folder))
        with replacing(out / "config.json") as partial:
            partial.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error}.") from error
    return Written(ids=ids, key=key, notes=notes + engine_notes(spec, rule))


def _ids(
    spec: DraftSpec,
    layout: str,
    place: Layout,
    rule: IdRule,
    engine: str,
    layers: int,
    drop_ids: bool,
) -> tuple[tuple[int, ...], str, tuple[str, ...]]:
    """The ids to write, the key they stand under, and what to tell."""
    if spec.last_hidden:
        return (), "", ()
    physical = list(spec.capture_physical)
    if drop_ids or not place.key:
        if not drop_ids and spec.capture_physical != rule.default(layers):
            raise CheckpointError(
                f"{layout} files name no layers, and {rule.code} would capture "
                f"{list(rule.default(layers))}, not physical {physical}.",
                todo="Choose another format, or --drop-ids and say the layers when it is loaded.",
            )
        return (), "", (f"no layer ids are written; say --capture-ids {_comma(physical)}",)
    key = rule.keys[0] if engine and rule.serves else place.key
    ids = to_written(spec.capture_physical, rule, layers)
    return ids, key, ()


def _put_ids(
    config: dict[str, Any], spec: DraftSpec, ids: tuple[int, ...], key: str, engine: str
) -> None:
    if not key:
        return
    if key == NESTED:
        config.setdefault("eagle_config", {})[IDS] = list(ids)
    else:
        config[key] = list(ids)
    if engine:
        config[MARKER] = {"capture_physical": list(spec.capture_physical), "ids_for": engine}


def _config(spec: DraftSpec, folder: Folder, layout: str, place: Layout) -> dict[str, Any]:
    """config.json without ids."""
    layer = layer_config(spec, folder.config.get("transformer_layer_config", folder.config))
    flags: dict[str, Any] = {name: getattr(spec, name) for name in place.flags}
    sizes = {
        "draft_vocab_size": spec.draft_vocab,
        "target_hidden_size": spec.target_hidden,
        "tie_word_embeddings": "lm_head.weight" not in folder.tensors,
    }
    if place.nested_layer:
        return {
            "architectures": ["Eagle3DraftModel"],
            "speculators_model_type": "eagle3",
            "speculators_version": "0.5.0",
            **sizes,
            **flags,
            "embed_requires_grad": "embed_tokens.weight" in folder.tensors,
            "transformer_layer_config": layer,
        }
    kept = _plain_values(folder)
    config = {"architectures": [_architecture(spec, layout)], **layer, **kept, **sizes, **flags}
    if layout != "safeailab":
        config["eagle_config"] = {"use_aux_hidden_state": not spec.last_hidden}
    if layout == "nvidia":
        config["eagle_config"] |= {
            "use_input_layernorm_in_first_layer": True,
            "use_last_layernorm": True,
            "use_mtp_layernorm": False,
            "next_layer_regular": True,
        }
    return config


def _plain_values(folder: Folder) -> dict[str, Any]:
    names = ("bos_token_id", "eos_token_id", "pad_token_id", "initializer_range")
    return {name: folder.config[name] for name in names if folder.config.get(name) is not None}


def _architecture(spec: DraftSpec, layout: str) -> str:
    if spec.latent is not None:
        return "Eagle3DeepseekV2ForCausalLM"
    return "LlamaForCausalLM" if layout == "safeailab" else "LlamaForCausalLMEagle3"


def _file_name(name: str, spec: DraftSpec, place: Layout) -> str:
    """speculators and latent drafts call the first layer layers.0."""
    if place.nested_layer or spec.latent is not None:
        return name.replace("midlayer.", "layers.0.", 1) if name.startswith("midlayer.") else name
    return name


def _offsets(spec: DraftSpec, folder: Folder) -> dict[str, np.ndarray]:
    """A direct map is written as offsets; everything else keeps its bytes."""
    if spec.d2t_policy != DIRECT:
        return {}
    ids = read_array(folder.tensors["d2t"]).astype(np.int64)
    return {"d2t": ids - np.arange(len(ids), dtype=np.int64)}


def _comma(values: list[int]) -> str:
    return ",".join(map(str, values))
