"""Configs are read strictly: nothing unknown is ignored, no default goes unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.checkpoint.keys import Keys
from specbench.checkpoint.layer_rules import layer_shape, sliding_window
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


def test_null_is_absent() -> None:
    table = keys(norm_output=None, mlp_bias=None)
    assert table.flag("norm_output", default=True) is True
    table.must_be("mlp_bias", False)
    table.done()


def test_a_message_stays_short_whatever_the_keys() -> None:
    table = keys(**{"x" * 100_000: 1}, **{f"k{i}": i for i in range(100)})
    with pytest.raises(CheckpointError, match="and 93 more") as caught:
        table.done()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("table", "window"),
    [
        ({}, None),
        ({"sliding_window": 128}, 128),
        ({"sliding_window": 128, "use_sliding_window": False, "max_window_layers": 28}, None),
        ({"layer_types": ["full_attention"] * 36, "sliding_window": 128}, None),
        ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64}, 64),
    ],
    ids=str,
)
def test_windows(table: dict[str, Any], window: int | None) -> None:
    read = keys(num_hidden_layers=2, **table)
    assert sliding_window(read) == window
    read.done()


@pytest.mark.parametrize(
    "table",
    [
        {"layer_types": ["sliding_attention"], "sliding_window": 64},
        {"layer_types": ["sliding_attention"] * 2},
        {"layer_types": ["linear_attention"] * 2},
        {"layer_types": []},
        {"sliding_window": -3},
    ],
    ids=str,
)
def test_windows_that_are_not_understood(table: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"layer_types|sliding_window"):
        sliding_window(keys(num_hidden_layers=2, **table))
