"""Damaged drafts of every kind: one clear error each, in under a second and little memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench.checkpoint import read_draft, read_target
from specbench.errors import CheckpointError
from specbench.modelspec import TargetSpec
from tests.tiny import TinyPair, TinyShape, write_pair

WRONG: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            False,
            0,
            -1,
            1,
            2**31,
            2**63,
            10**400,
            1e308,
            "",
            "64",
            [],
            {},
            [[]],
            "x" * 999,
        ]
    ),
    st.floats(allow_nan=True, allow_infinity=True),
    st.lists(st.integers(-5, 100), max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyPair, TargetSpec]:
    pair = write_pair(tmp_path_factory.mktemp("fuzz"))
    return pair, read_target(pair.target)[0]


def attempt(pair: TinyPair, target: TargetSpec, folder: Path) -> None:
    """Read a damaged draft: it may be fine, or raise CheckpointError; nothing else."""
    tracemalloc.start()
    message = ""
    try:
        read_draft(folder, target)
    except CheckpointError as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(message) < 4000
    assert peak < 32 * 1024 * 1024


@settings(
    max_examples=300, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_configs(world: tuple[TinyPair, TargetSpec], tmp_path: Path, data: st.DataObject) -> None:
    pair, target = world
    config = json.loads((pair.draft / "config.json").read_text())
    names = [*config, "quantization_config", "rope_scaling", "rope_parameters", "layer_types",
             "speculators_model_type", "transformer_layer_config", "specbench", "norm_output",
             "eagle_aux_hidden_state_layer_ids", "target_hidden_size"]  # fmt: skip
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        if data.draw(st.booleans()):
            config[name] = data.draw(WRONG)
        elif name == "eagle_config":
            key = data.draw(st.sampled_from(["eagle_aux_hidden_state_layer_ids", "new"]))
            config[name] = {key: data.draw(WRONG)}
        else:
            config.pop(name, None)
    damaged(pair, tmp_path, json.dumps(config).encode(), None)
    attempt(pair, target, tmp_path)


@settings(
    max_examples=200, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_headers(world: tuple[TinyPair, TargetSpec], tmp_path: Path, data: st.DataObject) -> None:
    """Entries with other shapes, offsets and types; files cut anywhere; lengths that lie."""
    pair, target = world
    content = (pair.draft / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = data.draw(st.sampled_from(sorted(header)))
    damage = data.draw(st.sampled_from(["drop", "field", "copy", "cut", "length", "deep"]))
    if damage == "drop":
        header.pop(name)
    elif damage == "field":
        key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets", "extra"]))
        header[name][key] = data.draw(WRONG)
    elif damage == "copy":
        header["another"] = header[name]
    elif damage == "deep":
        depth = data.draw(st.sampled_from([5, 100, 10_000]))
        header[name] = "DEEP"
    text = json.dumps(header).encode()
    if damage == "deep":
        text = text.replace(b'"DEEP"', b"[" * depth + b"]" * depth)
    length = data.draw(st.integers(0, 2**64 - 1)) if damage == "length" else len(text)
    whole = length.to_bytes(8, "little") + text + rest
    if damage == "cut":
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    damaged(pair, tmp_path, (pair.draft / "config.json").read_bytes(), whole)
    with pytest.raises(CheckpointError):
        read_draft(tmp_path, target)
    attempt(pair, target, tmp_path)


def damaged(pair: TinyPair, folder: Path, config: bytes, weights: bytes | None) -> None:
    (folder / "config.json").write_bytes(config)
    place = folder / "model.safetensors"
    if weights is not None:
        place.write_bytes(weights)
    elif not place.exists():
        place.hardlink_to(pair.draft / "model.safetensors")


@pytest.mark.parametrize("depth", [33, 1000, 10_000])
def test_configs_nested_without_end(
    world: tuple[TinyPair, TargetSpec], tmp_path: Path, depth: int
) -> None:
    pair, target = world
    damaged(pair, tmp_path, b'{"a":' * depth + b"1" + b"}" * depth, None)
    with pytest.raises(CheckpointError, match="nested deeper"):
        read_draft(tmp_path, target)


@pytest.mark.parametrize("count", [10**6, 10**12, 2**40])
def test_sizes_that_nobody_has_cost_nothing(
    world: tuple[TinyPair, TargetSpec], tmp_path: Path, count: int
) -> None:
    pair, target = world
    config = json.loads((pair.draft / "config.json").read_text())
    for name in ("num_hidden_layers", "hidden_size", "draft_vocab_size", "intermediate_size"):
        damaged(pair, tmp_path, json.dumps({**config, name: count}).encode(), None)
        with pytest.raises(CheckpointError):
            read_draft(tmp_path, target)
        attempt(pair, target, tmp_path)


def test_a_draft_of_another_vocabulary(tmp_path: Path) -> None:
    mine = write_pair(tmp_path / "a")
    other = write_pair(tmp_path / "b", TinyShape(vocab=300))
    with pytest.raises(CheckpointError, match=r"vocab_size is 300\. 288"):
        read_draft(other.draft, read_target(mine.target)[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [("bos_token_id", "a"), ("torch_dtype", 7), ("architectures", "Llama"), ("use_cache", 3),
     ("eos_token_id", [1, "b"]), ("pad_token_id", True)],
)  # fmt: skip
def test_harmless_keys_of_a_wrong_kind(tmp_path: Path, name: str, value: Any) -> None:
    pair = write_pair(tmp_path)
    target = read_target(pair.target)[0]
    for folder in (pair.draft, pair.target):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(CheckpointError, match=name):
        read_draft(pair.draft, target)
    with pytest.raises(CheckpointError, match=name if name != "architectures" else "Llama model"):
        read_target(pair.target)
