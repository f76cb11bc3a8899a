"""Rope settings in both spellings, and the frequencies that follow, against transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from specbench.checkpoint.keys import Keys
from specbench.checkpoint.rope import read_rope
from specbench.engine.models.rope import factors, frequencies
from specbench.errors import CheckpointError

BASE = {"max_position_embeddings": 4096}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 512}  # fmt: skip
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 256}
TABLES: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    LLAMA3,
    YARN,
    {**YARN, "mscale": 0.707, "mscale_all_dim": 1.0, "beta_fast": 20, "beta_slow": 2},
    {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    {**YARN, "truncate": False},
    {**YARN, "attention_factor": 1.25},
]


def read(**values: Any) -> Any:
    return read_rope(Keys({**BASE, **values}, "config.json"), 64)


@pytest.mark.parametrize("table", TABLES)
def test_frequencies_are_those_of_transformers(table: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    spec = read(rope_theta=10000.0, rope_scaling=table)
    kind = table.get("rope_type", table.get("type"))
    config = transformers.LlamaConfig(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=4096,
        rope_parameters={**table, "rope_type": kind, "rope_theta": 10000.0},
    )  # fmt: skip
    expected, factor = utils.ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    found = frequencies(spec, 64)
    torch.testing.assert_close(found.float(), expected, rtol=2e-5, atol=0)
    assert factors(spec)[0] == pytest.approx(factor)


def test_both_spellings_say_the_same() -> None:
    nested = read(rope_parameters={**LLAMA3, "rope_theta": 5.0e5})
    assert nested == read(rope_theta=5.0e5, rope_scaling=LLAMA3)
    assert nested.theta == 5.0e5
    assert read(rope_theta=7.0).scaling is None


def test_scores_are_scaled_by_latent_attention_alone() -> None:
    """m(40, 1.0) = 1.3689 and its square 1.8738 (engine-spec 12.3)."""
    table = {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}
    keys = Keys({**BASE, "rope_scaling": table}, "config.json")
    part = read_rope(keys, 64, part_of_head=True)
    turned, scored = factors(part)
    assert turned == 1.0
    assert scored == pytest.approx((0.1 * math.log(40) + 1) ** 2)
    assert scored == pytest.approx(1.8738, abs=1e-4)
    assert part.dim == 64
    assert factors(read(rope_scaling=table)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic' is not supported"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "'longrope'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "'factor' is missing"),
        ({"rope_scaling": {**YARN, "rope_type": "llama3"}}, "rope_type='llama3', type='yarn'"),
        ({"rope_scaling": {**YARN, "beta_quick": 1}}, "beta_quick"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor=0"),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}}, "low_freq_factor=4.0"),
        ({"rope_scaling": LLAMA3, "rope_parameters": YARN}, "differ"),
        ({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 2.0}}, "differ"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
        ({"rope_scaling": [1]}, "A table or null"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    ],
)
def test_what_is_not_understood_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(**values)


@pytest.mark.parametrize(
    "table",
    [
        {"type": "mrope", "mrope_section": [16, 24, 24]},
        {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
    ],
)
def test_three_axes_are_one_for_text(table: dict[str, Any]) -> None:
    keys = Keys({**BASE, "rope_theta": 5.0, "rope_scaling": table}, "config.json")
    assert read_rope(keys, 128) == read(rope_theta=5.0)
    assert [c.code for c in keys.caveats] == ["mrope"]
