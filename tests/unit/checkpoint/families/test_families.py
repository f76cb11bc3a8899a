"""What each family's reader understands, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.checkpoint import read_target
from specbench.checkpoint.families import FAMILIES
from specbench.config import EngineConfig
from specbench.engine.pair import ModelPair
from specbench.errors import CheckpointError, ConfigError
from tests.families import MODELS, written

pytest.importorskip("transformers")


def copied(name: str, folder: Path, **values: Any) -> Path:
    """A copy of a written model with config keys changed; None drops the key."""
    target = folder / "model"
    if not target.exists():
        shutil.copytree(written(name)[0], target)
    path = target / "config.json"
    config = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return target


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_read_by_the_family_of_its_name(name: str) -> None:
    spec, folder = read_target(written(name)[0])
    assert name.startswith(spec.family) or spec.family == "llama"
    assert spec.plain == (spec.family == "llama")
    assert not [c for c in spec.caveats if c.code not in ("context_limit",)]
    assert spec.family in {family.name for family in FAMILIES}
    assert len(folder.tensors) > 10


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss"])
def test_unknown_keys_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="attention_chunk"):
        read_target(copied(name, tmp_path, attention_chunk=4))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("qwen2", {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ("qwen2", {"attention_bias": False}, "attention_bias=False"),
        ("qwen3", {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
        ("qwen3_moe", {"num_experts_per_tok": 7}, "7 of 6 experts"),
        ("qwen3_moe", {"mlp_only_layers": "all"}, "mlp_only_layers"),
        ("qwen3_moe", {"num_experts": 5}, "number of experts"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func='sigmoid'"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func='softmax'"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method='greedy'"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave=False"),
        ("deepseek_v3", {"n_group": 3}, "3 groups|of 3"),
        ("deepseek_v3", {"qk_rope_head_dim": 13}, "qk_rope_head_dim=13"),
        ("glm_moe_dsa", {"mlp_layer_types": ["sparse", "dense"] * 2}, "mlp_layer_types"),
        ("gpt_oss", {"layer_types": ["sliding_attention"] * 3}, "for each of 4 layers"),
        ("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}}, "dequantize=True"),
        ("deepseek_v3", {"quantization_config": {"quant_method": "fp8"}}, "quantised .'fp8'."),
    ],
)
def test_what_our_forward_is_not_is_refused(
    name: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_target(copied(name, tmp_path, **values))


def test_absurd_layer_counts_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    for name in ("qwen3", "deepseek_v3", "gpt_oss", "qwen2 sliding", "glm_moe_dsa"):
        folder = copied(name, tmp_path / name, num_hidden_layers=2**39, layer_types=None)
        with pytest.raises(CheckpointError):
            read_target(folder)


def test_layers_for_multi_token_prediction_are_known_and_not_loaded(tmp_path: Path) -> None:
    folder = copied("deepseek_v3", tmp_path, num_nextn_predict_layers=1)
    path = folder / "model.safetensors"
    extra = {"model.layers.4.eh_proj.weight": torch.ones(64, 128)}
    save_file({**load_file(path), **extra}, path)
    spec, opened = read_target(folder)
    assert "1 tensors of the layers for multi-token prediction" in spec.caveats[-1].text
    assert not set(extra) & set(opened.tensors)
    copied("deepseek_v3", tmp_path, num_nextn_predict_layers=0)
    with pytest.raises(CheckpointError, match=r"unknown: model\.layers\.4\.eh_proj"):
        read_target(folder)


def test_glm_is_served_up_to_its_indexers_choice() -> None:
    folder = written("glm_moe_dsa")[0]
    spec, opened = read_target(folder)
    assert spec.context_limit == 64
    assert not [name for name in opened.tensors if "indexer" in name]
    assert "up to index_topk=64 tokens" in spec.caveats[-1].text
    assert ModelPair.load(folder, None, EngineConfig(max_len=64)).target_spec == spec
    with pytest.raises(ConfigError, match=r"max_len=65, but glm_moe_dsa is served up to 64"):
        ModelPair.load(folder, None, EngineConfig(max_len=65))


def test_defaults_are_said(tmp_path: Path) -> None:
    spec, _ = read_target(
        copied("qwen3_moe", tmp_path, decoder_sparse_step=None, rms_norm_eps=None)
    )
    told = " ".join(c.text for c in spec.caveats)
    assert "decoder_sparse_step is absent, 1 is taken" in told
    assert "rms_norm_eps is absent" in told


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    """The same model in many files loads to the same tensors."""
    _, model = written("deepseek_v3")
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    from specbench.engine.models.weights import load_tensors

    cpu = torch.device("cpu")
    many = load_tensors(read_target(tmp_path)[1], torch.float32, cpu)
    one = load_tensors(read_target(written("deepseek_v3")[0])[1], torch.float32, cpu)
    assert many.keys() == one.keys()
    assert all(torch.equal(many[name], one[name]) for name in one)


def test_what_decides_between_experts_is_not_rounded() -> None:
    from specbench.engine.models.weights import load_tensors

    folder = read_target(written("deepseek_v3")[0])[1]
    half = load_tensors(folder, torch.bfloat16, torch.device("cpu"))
    assert half["model.layers.1.mlp.gate.e_score_correction_bias"].dtype == torch.float32
    assert half["model.layers.1.mlp.gate.weight"].dtype == torch.float32
    assert half["model.layers.1.mlp.experts.0.up_proj.weight"].dtype == torch.bfloat16
