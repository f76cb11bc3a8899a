"""What a checkpoint leaves open is taken in one way, and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from specbench.checkpoint import read_draft, read_target
from specbench.checkpoint.keys import Keys
from specbench.modelspec import DraftSpec
from tests.drafts import Kind, write_kind
from tests.tiny import TinyPair


def change(pair: TinyPair, **values: Any) -> None:
    path = pair.draft / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def read(pair: TinyPair, **flags: Any) -> DraftSpec:
    return read_draft(pair.draft, read_target(pair.target)[0], **flags)[0]


def codes(spec: DraftSpec) -> list[tuple[str, str]]:
    return [(caveat.code, caveat.severity.value) for caveat in spec.caveats]


def test_a_key_that_is_absent() -> None:
    keys = Keys({}, "config.json")
    assert keys.integer("num_key_value_heads", 4) == 4
    assert [caveat.code for caveat in keys.caveats] == ["config_default"]


def test_ids_that_cannot_be_read_give_way_to_a_flag(tmp_path: Path) -> None:
    pair = write_kind(tmp_path, Kind(name="plain"))
    change(pair, eagle_config={"eagle_aux_hidden_state_layer_ids": "1,2"})
    spec = read(pair, capture_ids=(1, 2, 3))
    assert spec.capture_physical == (1, 2, 3)
    assert codes(spec) == [("capture_unread", "note"), ("capture_ids", "note")]


def test_ids_of_a_draft_that_reads_the_last_state_alone(tmp_path: Path) -> None:
    pair = write_kind(tmp_path, Kind(name="last hidden", last_hidden=True))
    ids = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    change(pair, eagle_config={"use_aux_hidden_state": False, **ids})
    spec = read(pair)
    assert spec.last_hidden
    assert codes(spec) == [("ids_unused", "note")]


def test_two_norms_before_an_upper_layer(tmp_path: Path) -> None:
    pair = write_kind(tmp_path, Kind(name="two layers", layers=2))
    path = pair.draft / "model.safetensors"
    tensors = load_file(path)
    tensors["layers.1.hidden_norm.weight"] = tensors["layers.1.input_layernorm.weight"].clone()
    save_file(tensors, path)
    spec = read(pair)
    assert spec.upper_norm == "input_layernorm"
    assert codes(spec) == [("upper_norm", "warning")]


def test_a_sliding_window(tmp_path: Path) -> None:
    pair = write_kind(tmp_path, Kind(name="plain"))
    change(pair, sliding_window=256)
    spec = read(pair)
    assert spec.context_limit == 256
    assert codes(spec) == [("draft_window", "note")]
