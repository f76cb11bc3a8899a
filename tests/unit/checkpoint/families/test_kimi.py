"""Kimi-K2.5: the wrapper is taken off, in every spelling of its names."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.checkpoint import read_target
from specbench.errors import CheckpointError
from tests.families import V3, load, randomise

transformers = pytest.importorskip("transformers")
TOKENS = [(i * 37 + 11) % 288 for i in range(23)]
VISION = {
    "patch_size": 4, "pos_emb_height": 4, "pos_emb_width": 4, "pos_emb_time": 2,
    "num_attention_heads": 2, "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 48,
}  # fmt: skip
NAMES = {
    "as saved by transformers": ("", ""),
    "as published": (r"model\.blocks\.", "model.layers."),
    "NVFP4 export": (r"language_model\.model\.(blocks|layers)\.", "language_model.layers."),
    "as held by transformers": (
        r"language_model\.model\.(blocks\.)?", r"model.language_model.\1"
    ),
}  # fmt: skip


@functools.cache
def peer() -> Any:
    """A tiny random wrapper, its text model untied."""
    config = transformers.Kimi_K25Config(
        text_config={**V3, "model_type": "deepseek_v3"},
        vision_config=VISION,
        projection_hidden_size=32,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = transformers.Kimi_K25ForConditionalGeneration(config).eval()
    randomise(model)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    peer().save_pretrained(tmp_path)
    return tmp_path


def change(folder: Path, drop: tuple[str, ...] = (), **values: Any) -> None:
    path = folder / "config.json"
    config = {k: v for k, v in json.loads(path.read_text()).items() if k not in drop}
    path.write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_features_are_those_of_the_whole_wrapper(folder: Path, name: str) -> None:
    pattern, new = NAMES[name]
    path = folder / "model.safetensors"
    tensors = load_file(path)
    renamed = {re.sub(pattern, new, n) if pattern else n: t for n, t in tensors.items()}
    renamed = {n.replace("model.language_model.blocks.", "model.language_model.layers."): t
               for n, t in renamed.items()}  # fmt: skip
    save_file(renamed, path)
    loaded = load(folder, torch.float32)
    with torch.inference_mode():
        mine = loaded.runner(loaded.pool()).prefill(0, 0, TOKENS, last=True)
        theirs = peer()(torch.tensor([TOKENS]), output_hidden_states=True)
    torch.testing.assert_close(mine.logits[0], theirs.logits[0, -1], atol=1e-4, rtol=1e-4)
    features = mine.features.view(len(TOKENS), 5, 64)
    for k in range(4):
        torch.testing.assert_close(features[:, k], theirs.hidden_states[k][0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tie", [True, None])
def test_the_wrapper_cannot_tie_the_text_models_head(folder: Path, tie: bool | None) -> None:
    change(
        folder,
        drop=("tie_word_embeddings",),
        **({} if tie is None else {"tie_word_embeddings": tie}),
    )
    spec, opened = read_target(folder)
    assert not spec.tied
    assert "lm_head.weight" in opened.tensors
    assert (spec.family, spec.n_layers, spec.shape.hidden) == ("kimi_k25", 4, 64)


def test_what_is_not_served_is_said_and_not_loaded(folder: Path) -> None:
    spec, opened = read_target(folder)
    (caveat,) = [c for c in spec.caveats if c.code == "not_served"]
    assert re.search(r"text only is served; \d\d vision tensors are not loaded", caveat.text)
    assert not [name for name in opened.tensors if "vision" in name or "projector" in name]


def test_the_older_name_of_the_text_model_is_read(folder: Path) -> None:
    text = json.loads((folder / "config.json").read_text())["text_config"]
    change(folder, text_config={**text, "model_type": "kimi_k2"})
    assert read_target(folder)[0].experts is not None
    change(folder, text_config={**text, "model_type": "llama"})
    with pytest.raises(CheckpointError, match=r"text_config\.model_type='llama'"):
        read_target(folder)


def test_unknown_keys_and_tensors_are_refused(folder: Path) -> None:
    change(folder, merge_mode=3)
    with pytest.raises(CheckpointError, match="merge_mode"):
        read_target(folder)
    change(folder, drop=("merge_mode", "text_config"))
    with pytest.raises(CheckpointError, match="text_config=None"):
        read_target(folder)


def test_a_tensor_of_neither_half_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), "audio_tower.weight": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match=r"unknown: audio_tower\.weight"):
        read_target(folder)
