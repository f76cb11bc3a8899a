"""Damaged drafts of every kind: one clear error each, in under a second and little memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
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
    refused_or_read(lambda: read_draft(folder, target))


@settings(
    max_examples=220, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_configs(world: tuple[TinyPair, TargetSpec], tmp_path: Path, data: st.DataObject) -> None:
    pair, target = world
    config = json.loads((pair.draft / "config.json").read_text())
    names = [*config, "quantization_config", "rope_scaling", "rope_parameters", "layer_types",
             "sliding_window", "truncated_vocab_size", "bias", "fc_norm", "partial_rotary_factor",
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
    max_examples=130, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
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


@settings(
    max_examples=60, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_ids_and_vocabularies_of_another_target(
    world: tuple[TinyPair, TargetSpec], tmp_path: Path, data: st.DataObject
) -> None:
    """Layer ids outside 0..n, as many as fc reads, and sizes of another vocabulary."""
    pair, target = world
    config = json.loads((pair.draft / "config.json").read_text())
    if data.draw(st.booleans()):
        outside = st.one_of(st.integers(-(2**70), -2), st.integers(target.n_layers, 2**70))
        ids = [0, 1, data.draw(outside)]
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = data.draw(st.permutations(ids))
        wanted = r"layer ids|outside|indices in 0\.\.4"
    else:
        name = data.draw(st.sampled_from(["vocab_size", "draft_vocab_size"]))
        config[name] = data.draw(st.integers(1, 2**41).filter(lambda v: v not in (288, 272)))
        wanted = "vocab_size|wrong shape|d2t|2\\^40"
    damaged(pair, tmp_path, json.dumps(config).encode(), None)
    with pytest.raises(CheckpointError, match=wanted):
        read_draft(tmp_path, target)
    attempt(pair, target, tmp_path)


@settings(
    max_examples=60, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_offsets_that_overlap_leave_holes_or_point_outside(
    world: tuple[TinyPair, TargetSpec], tmp_path: Path, data: st.DataObject
) -> None:
    """Sizes stay right, so that the place alone is wrong."""
    pair, target = world
    content = (pair.draft / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = data.draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))
    shift = data.draw(st.one_of(st.integers(1, 4096), st.integers(1, 2**60), st.integers(-64, -1)))
    begin, end = header[name]["data_offsets"]
    header[name]["data_offsets"] = [begin + shift, end + shift]
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text + rest
    damaged(pair, tmp_path, (pair.draft / "config.json").read_bytes(), whole)
    with pytest.raises(CheckpointError, match=r"overlaps|hole|end at byte|has shape"):
        read_draft(tmp_path, target)
    attempt(pair, target, tmp_path)


@settings(
    max_examples=60, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_targets_and_indices(
    world: tuple[TinyPair, TargetSpec], tmp_path: Path, data: st.DataObject
) -> None:
    """A damaged target, a target given as draft and a draft as target, an index that lies."""
    pair, target = world
    config = json.loads((pair.target / "config.json").read_text())
    damage = data.draw(st.sampled_from(["target", "swapped", "index"]))
    index = tmp_path / "model.safetensors.index.json"
    index.unlink(missing_ok=True)
    if damage == "target":
        config[data.draw(st.sampled_from([*config, "rope_scaling", "layer_types", "x"]))] = (
            data.draw(WRONG)
        )
        (tmp_path / "config.json").write_text(json.dumps(config))
        link(pair.target, tmp_path)
        refused_or_read(lambda: read_target(tmp_path))
        return
    if damage == "swapped":
        with pytest.raises(CheckpointError, match="a whole model"):
            read_draft(pair.target, target)
        with pytest.raises(CheckpointError, match="LlamaForCausalLMEagle3"):
            read_target(pair.draft)
        return
    (tmp_path / "config.json").write_bytes((pair.draft / "config.json").read_bytes())
    link(pair.draft, tmp_path)
    named = data.draw(
        st.one_of(WRONG, st.dictionaries(st.sampled_from(["fc.weight", "d2t", "x"]), WRONG))
    )
    index.write_text(json.dumps({"weight_map": named}))
    with pytest.raises(CheckpointError, match=r"index\.json|cannot be read|whole safetensors"):
        read_draft(tmp_path, target)


def link(folder: Path, place: Path) -> None:
    weights = place / "model.safetensors"
    weights.unlink(missing_ok=True)
    weights.hardlink_to(folder / "model.safetensors")


def refused_or_read(read: Callable[[], object]) -> None:
    """The call may succeed or raise CheckpointError with a short message; nothing else."""
    tracemalloc.start()
    message = ""
    try:
        read()
    except CheckpointError as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(message) < 4000
    assert peak < 32 * 1024 * 1024


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
