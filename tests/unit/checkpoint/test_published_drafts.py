"""Configs as people publish them: nothing harmless is refused, everything meaningful is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.checkpoint import read_draft, read_target
from specbench.config import EngineConfig
from specbench.engine.pair import ModelPair
from specbench.errors import CheckpointError
from tests.drafts import Kind, write_kind
from tests.tiny import TinyPair
from tests.unit.checkpoint.published_drafts import PUBLISHED, Published


def publish(folder: Path, one: Published) -> TinyPair:
    """The draft's tensors, random, under the published config; no t2d, as modelopt exports."""
    pair = write_kind(folder, one.kind)
    (pair.draft / "config.json").write_text(json.dumps(one.config))
    return pair


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.source)
def test_it_is_read_as_it_was_meant(tmp_path: Path, one: Published) -> None:
    pair = publish(tmp_path, one)
    target = read_target(pair.target)[0]
    if one.refused:
        with pytest.raises(CheckpointError, match=one.refused):
            read_draft(pair.draft, target, **one.given)
        return
    spec, _ = read_draft(pair.draft, target, **one.given)
    assert {name: getattr(spec, name) for name in one.says} == one.says
    assert spec.shape.hidden == pair.shape.hidden
    assert (spec.rope.scaling is not None) == bool(one.kind.scaling or one.kind.latent)
    codes = [c.code for c in spec.caveats if c.code != "norm_output_ambiguous"]
    assert set(codes) == set(one.caveats), [c.text for c in spec.caveats]


@pytest.mark.parametrize(
    "one",
    [p for p in PUBLISHED if not p.refused and p.kind.name != "plain"],
    ids=lambda p: p.source,
)
def test_it_runs(tmp_path: Path, one: Published) -> None:
    pair = publish(tmp_path, one)
    config = EngineConfig(dtype="float32", max_len=64)
    loaded = ModelPair.load(pair.target, pair.draft, config, **one.given)
    assert loaded.draft is not None
    assert loaded.draft_spec is not None


def test_modelopt_names_layers_of_a_deep_draft_by_midlayer(tmp_path: Path) -> None:
    """midlayer.0 and midlayer.1, as its older exports have them."""
    pair = write_kind(tmp_path, Kind(name="deep", layers=2))
    path = pair.draft / "model.safetensors"
    tensors = load_file(path)
    before = read_draft(pair.draft, read_target(pair.target)[0])[0]
    renamed = {
        n.replace("midlayer.", "midlayer.0.").replace("layers.1.", "midlayer.1."): t
        for n, t in tensors.items()
    }
    save_file(renamed, path)
    assert any(name.startswith("midlayer.1.") for name in renamed)
    assert read_draft(pair.draft, read_target(pair.target)[0])[0] == before


def test_a_mixture_of_experts_is_named_as_such(tmp_path: Path) -> None:
    pair = write_kind(tmp_path, Kind(name="plain"))
    path = pair.draft / "model.safetensors"
    moe = {"midlayer.mlp.experts.0.gate_proj.weight": torch.zeros(4, 4)}
    save_file({**load_file(path), **moe}, path)
    with pytest.raises(CheckpointError, match="a draft with a mixture of experts"):
        read_draft(pair.draft, read_target(pair.target)[0])
