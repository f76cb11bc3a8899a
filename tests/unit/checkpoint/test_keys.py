"""Configs are read strictly: nothing unknown is ignored, no default goes unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.checkpoint.keys import Keys, rope
from specbench.checkpoint.layer_rules import layer_shape
from specbench.errors import CheckpointError

SIZES = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96,
    "rms_norm_eps": 1e-5,
}  # fmt: skip


def keys(**table: Any) -> Keys:
    return Keys(table, "config.json")


def test_unknown_keys_are_named_with_the_nearest_known() -> None:
    table = keys(hidden_sise=3, hidden_size=64, foo=1, use_cache=True)
    table.integer("hidden_size")
    with pytest.raises(CheckpointError, match=r"'foo', 'hidden_sise' \(did you mean 'hidden_size'"):
        table.done()


def test_defaults_are_noted() -> None:
    table = keys(**SIZES)
    shape = layer_shape(table)
    assert (shape.kv_heads, shape.head_dim) == (4, 16)
    assert [c.text for c in table.caveats] == [
        "config.json: num_key_value_heads is absent, 4 is taken"
    ]
    assert rope(keys()).theta == 10000.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": 0}, {"hidden_size": True}, {"hidden_size": "64"}, {"hidden_size": None},
        {"num_attention_heads": 5}, {"num_key_value_heads": 3}, {"head_dim": 7},
        {"hidden_act": "gelu"}, {"attention_bias": True}, {"mlp_bias": True},
        {"sliding_window": 128}, {"quantization_config": {"bits": 4}}, {"rms_norm_eps": -1},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_supported_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=next(iter(wrong)).split("_")[0]):
        layer_shape(keys(**{**SIZES, **wrong}))


def test_rope_in_both_spellings() -> None:
    assert rope(keys(rope_theta=500.0, max_position_embeddings=99)).max_position == 99
    nested = {"rope_type": "default", "rope_theta": 500.0}
    assert rope(keys(rope_parameters=nested)).theta == 500.0
    assert rope(keys(rope_parameters=nested, rope_theta=500.0)).theta == 500.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"rope_scaling": {"rope_type": "llama3"}},
        {"rope_scaling": {"type": "linear", "factor": 2}},
        {"rope_parameters": {"rope_type": "default", "factor": 8.0}},
        {"rope_parameters": 3},
        {"rope_parameters": {"rope_theta": 1.0}, "rope_theta": 2.0},
    ],
    ids=str,
)
def test_scaled_rope_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="rope"):
        rope(keys(**wrong))
