"""Target folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.checkpoint import read_target
from specbench.errors import CheckpointError
from tests.tiny import TinyPair, write_pair


@pytest.fixture
def pair(tmp_path: Path) -> TinyPair:
    return write_pair(tmp_path)


def change(pair: TinyPair, **values: Any) -> None:
    path = pair.target / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_target_is_read(pair: TinyPair) -> None:
    spec, folder = read_target(pair.target)
    assert (spec.n_layers, spec.vocab, spec.tied, spec.dtype) == (4, 288, False, "float32")
    assert spec.eos_ids == (287,)
    assert spec.caveats == ()
    assert len(folder.files) == 1


def test_generation_config_names_the_end_tokens(pair: TinyPair) -> None:
    (pair.target / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read_target(pair.target)[0].eos_ids == (5, 6)
    (pair.target / "generation_config.json").write_text('{"eos_token_id": 999}')
    with pytest.raises(CheckpointError, match="999"):
        read_target(pair.target)


def test_another_architecture_is_refused(pair: TinyPair) -> None:
    change(pair, architectures=["MixtralForCausalLM"])
    with pytest.raises(CheckpointError, match="MixtralForCausalLM"):
        read_target(pair.target)


def test_an_unknown_key_is_refused(pair: TinyPair) -> None:
    change(pair, hidden_size_per_layer=7)
    with pytest.raises(CheckpointError, match="hidden_size_per_layer"):
        read_target(pair.target)


def test_tensors_must_be_those_of_the_config(pair: TinyPair) -> None:
    change(pair, num_hidden_layers=5, intermediate_size=97)
    with pytest.raises(CheckpointError) as caught:
        read_target(pair.target)
    message = str(caught.value)
    assert "missing: model.layers.4.input_layernorm.weight" in message
    assert "down_proj.weight is [64, 96], not [64, 97]" in message
    assert "and 1 more" in message or "more" in message


def test_extra_and_tied_tensors(pair: TinyPair) -> None:
    change(pair, tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match=r"unknown: lm_head\.weight"):
        read_target(pair.target)


def test_a_stored_rope_buffer_is_harmless(pair: TinyPair) -> None:
    path = pair.target / "model.safetensors"
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({**load_file(path), name: torch.ones(16)}, path)
    assert read_target(pair.target)[0].n_layers == 4


def test_integers_are_no_weights(pair: TinyPair) -> None:
    path = pair.target / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = torch.ones(64, dtype=torch.int64)
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"not floating point: model\.norm\.weight is I64"):
        read_target(pair.target)
