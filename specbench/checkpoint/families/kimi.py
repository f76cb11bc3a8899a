"""Kimi-K2.5: a wrapper of a vision tower and a DeepSeek-V3 text model; text alone is served.

Names vary between exports (engine-spec 12.4): ``language_model.model.layers``, an NVFP4 variant's
``language_model.layers`` and Hugging Face's ``model.language_model.layers``. transformers 5.24
saves ``language_model.model.blocks``: its renaming of the vision tower's blocks hits both halves.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from specbench.checkpoint.families.base import Family
from specbench.checkpoint.families.deepseek import read_v3
from specbench.checkpoint.folder import Folder
from specbench.checkpoint.headers import TensorEntry
from specbench.checkpoint.keys import Keys, shown
from specbench.errors import CheckpointError

_VISION = re.compile(r"(model\.)?(vision_tower|mm_projector|multi_modal_projector)\.")
_PREFIXES = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("language_model.", "model."),
    ("model.language_model.", "model."),
    ("lm_head.", "lm_head."),
)
_WRAPPER = (
    *("vision_config", "projection_hidden_size", "projection_layer_norm_eps", "image_token_id"),
    *("video_token_id", "vision_start_token_id", "vision_end_token_id", "ignore_index"),
    *("media_placeholder_token_id", "use_unified_vision_chunk", "video_placeholder"),
    *("encoder_only", "language_only"),
)


def unwrap(folder: Folder) -> tuple[Folder, tuple[str, ...]]:
    """The text model's folder, and what was set aside.

    The wrapper's ``tie_word_embeddings`` says nothing of the text model: its class sets it to true
    where the file is silent, and a head tied by it gives garbage. Only text_config decides.

    Raises:
        CheckpointError: no text_config, unknown keys, or a tensor of neither half.
    """
    source = f"{folder.path / 'config.json'}"
    keys = Keys(folder.config, source)
    text: Any = keys.raw("text_config")
    if not isinstance(text, dict):
        raise CheckpointError(f"{source}: text_config={shown(text)}.", expected="A table.")
    for name in _WRAPPER:
        keys.raw(name)
    keys.raw("tie_word_embeddings")
    keys.must_be("quantization_config", None)
    keys.done()
    kind = text.get("model_type", "deepseek_v3")
    if kind not in ("deepseek_v3", "kimi_k2"):
        raise CheckpointError(
            f"{source}: text_config.model_type={shown(kind)}.", expected="deepseek_v3 or kimi_k2."
        )
    config: dict[str, Any] = {
        key: folder.config[key] for key in ("eos_token_id", "bos_token_id") if key in folder.config
    }
    config |= {key: value for key, value in text.items() if value is not None or key not in config}
    tensors: dict[str, TensorEntry] = {}
    vision = [name for name in folder.tensors if _VISION.match(name)]
    for name in folder.tensors.keys() - set(vision):
        short = _bare(name)
        if short in tensors:
            raise CheckpointError(f"{folder.path} holds {short} under two names.")
        tensors[short] = folder.tensors[name]
    told = ("text only is served",)
    if vision:
        told = (f"text only is served; {len(vision)} vision tensors are not loaded",)
    return replace(folder, config=config, tensors=tensors), told


def _bare(name: str) -> str:
    for prefix, bare in _PREFIXES:
        if name.startswith(prefix):
            short = bare + name.removeprefix(prefix)
            return short.replace("model.blocks.", "model.layers.", 1)
    return name


KIMI_K25 = Family(
    name="kimi_k25",
    architectures=("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"),
    read=read_v3,
    unwrap=unwrap,
)
