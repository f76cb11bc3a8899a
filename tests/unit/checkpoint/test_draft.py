"""Draft folders: which layers they were trained on, and whether they fit the target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.checkpoint import read_draft, read_target
from specbench.errors import CheckpointError
from specbench.modelspec import DraftSpec
from tests.tiny import TinyPair, TinyShape, write_pair


@pytest.fixture
def pair(tmp_path: Path) -> TinyPair:
    return write_pair(tmp_path)


def change(pair: TinyPair, *without: str, **values: Any) -> None:
    path = pair.draft / "config.json"
    table = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({k: v for k, v in table.items() if k not in without}))


def change_tensors(pair: TinyPair, *without: str, **values: torch.Tensor) -> None:
    path = pair.draft / "model.safetensors"
    tensors = {**load_file(path), **{k.replace("__", "."): v for k, v in values.items()}}
    save_file({k: v for k, v in tensors.items() if k not in without}, path)


def read(pair: TinyPair, **flags: Any) -> DraftSpec:
    return read_draft(pair.draft, read_target(pair.target)[0], **flags)[0]


def test_specforge_ids_mean_the_output_of_a_layer(pair: TinyPair) -> None:
    spec = read(pair)
    assert spec.file_format == "specforge"
    assert spec.capture_physical == (1, 2, 3)
    assert "[0, 1, 2]" in spec.capture_source
    assert (spec.draft_vocab, spec.n_features, spec.feature_width) == (272, 3, 192)
    assert spec.d2t_policy == "offsets, checked against t2d"
    assert spec.embed_policy == "shared: the draft ships none"
    assert spec.caveats == ()


def test_ids_are_sorted_as_the_forward_meets_them(pair: TinyPair) -> None:
    change(pair, eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 0, 1]})
    assert read(pair).capture_physical == (1, 2, 3)


def test_a_draft_without_ids_needs_a_flag(pair: TinyPair) -> None:
    change(pair, "eagle_config")
    with pytest.raises(CheckpointError, match="Give --capture-ids"):
        read(pair)
    given = read(pair, capture_ids=(3, 1, 2))
    assert given.file_format == "safeailab"
    assert given.capture_physical == (1, 2, 3)
    assert [c.code for c in given.caveats] == ["capture_ids"]


def test_the_default_is_physical_2_n_half_n_minus_3(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyShape(layers=8, capture=(2, 4, 7)))
    change(pair, "eagle_config")
    spec = read(pair, capture_default=True)
    assert spec.capture_physical == (2, 4, 5)
    assert spec.capture_source.startswith("--capture-default")
    assert [c.code for c in spec.caveats] == ["capture_default"]


def test_flags_that_contradict(pair: TinyPair) -> None:
    with pytest.raises(CheckpointError, match="both given"):
        read(pair, capture_ids=(1, 2, 3), capture_default=True)
    with pytest.raises(CheckpointError, match="names its layers"):
        read(pair, capture_default=True)
    assert read(pair, capture_ids=(0, 2, 4)).caveats[0].text.endswith("physical X + 1)")


@pytest.mark.parametrize("ids", [(1, 2, 5), (-1, 2, 3), (1, 2, 2)])
def test_ids_outside_the_target(pair: TinyPair, ids: tuple[int, ...]) -> None:
    with pytest.raises(CheckpointError, match=r"indices in 0\.\.4"):
        read(pair, capture_ids=ids)


def test_fc_names_both_widths(pair: TinyPair) -> None:
    with pytest.raises(CheckpointError, match=r"reads 192 values, but 2 layers .* give 128"):
        read(pair, capture_ids=(1, 2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": "1,2"}}, "list of integers"),
        ({"eagle_config": {"layer_ids": [1, 2, 3]}}, "unknown keys: 'layer_ids'"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "reads 192 values, but 1 layers"),
        ({"eagle_config": {"use_aux_hidden_state": 0}}, "use_aux_hidden_state=0"),
        ({"eagle_config": 3}, "eagle_config=3"),
        ({"num_hidden_layers": 2, "layer_types": None}, r"missing: layers\.1\.input_layernorm"),
        ({"vocab_size": 300}, "vocab_size is 300"),
        ({"target_hidden_size": 32}, "target hidden size is 32"),
        ({"tie_word_embeddings": True}, "equal vocabularies"),
        ({"norm_before_fc": True}, r"missing: input_norm\.weight"),
        ({"fc_norm": True}, r"missing: fc_norm\.0\.weight"),
        ({"norm_output": "yes"}, "norm_output='yes'"),
    ],
    ids=str,
)
def test_configs_that_do_not_fit(pair: TinyPair, values: dict[str, Any], message: str) -> None:
    change(pair, **values)
    with pytest.raises(CheckpointError, match=message):
        read(pair)


def test_a_null_draft_vocabulary_is_the_whole_one_and_is_noted(pair: TinyPair) -> None:
    change(pair, draft_vocab_size=None)
    change_tensors(pair, "d2t", "t2d", lm_head__weight=torch.zeros(288, 64))
    spec = read(pair)
    assert spec.draft_vocab == 288
    assert [c.code for c in spec.caveats] == ["draft_vocab_default"]
    assert spec.d2t_policy == "none: the vocabularies are equal"


def test_a_first_layer_has_two_spellings(pair: TinyPair) -> None:
    before = read(pair)
    path = pair.draft / "model.safetensors"
    tensors = load_file(path)
    save_file({n.replace("midlayer", "layers.0"): t for n, t in tensors.items()}, path)
    assert read(pair) == before
    twice = {"layers.0.hidden_norm.weight": tensors["midlayer.hidden_norm.weight"].clone()}
    save_file({**tensors, **twice}, path)
    with pytest.raises(CheckpointError, match="same tensors under two names"):
        read(pair)


def test_a_target_is_no_draft(pair: TinyPair) -> None:
    with pytest.raises(CheckpointError, match=r"a whole model \(model\.layers"):
        read_draft(pair.target, read_target(pair.target)[0])


def test_a_draft_without_fc_is_none(pair: TinyPair) -> None:
    change_tensors(pair, "fc.weight")
    with pytest.raises(CheckpointError, match=r"no fc\.weight"):
        read(pair)


def test_unknown_tensors_are_refused(pair: TinyPair) -> None:
    change_tensors(pair, medusa__weight=torch.zeros(3))
    with pytest.raises(CheckpointError, match=r"unknown: medusa\.weight"):
        read(pair)
