"""Settings: legal points, strict loading and resolution."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.config import Arrival, EngineConfig, LoadConfig, SpecConfig, load_strict
from specbench.errors import ConfigError
from specbench.resolve import resolve


def test_a_conflicting_chain_names_both_values_and_what_sglang_would_do() -> None:
    with pytest.raises(ConfigError) as caught:
        SpecConfig(num_steps=3, topk=1, num_draft_tokens=16)

    text = str(caught.value)
    assert "num_steps=3 topk=1" in text
    assert "num_draft_tokens=16" in text
    assert "SGLang would silently use 4" in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("k", "b", "n"), [(-1, 1, 1), (0, 2, 1), (0, 1, 4), (3, 0, 4), (1, 2, 4), (2, 2, 8), (3, 2, 1)]
)
def test_illegal_points_are_refused(k: int, b: int, n: int) -> None:
    with pytest.raises(ConfigError):
        SpecConfig(num_steps=k, topk=b, num_draft_tokens=n)


@given(st.integers(1, 9), st.integers(2, 6))
def test_a_tree_may_be_as_large_as_its_pool_and_no_larger(k: int, b: int) -> None:
    pool = b + (k - 1) * b * b
    assert SpecConfig(num_steps=k, topk=b, num_draft_tokens=pool + 1).num_draft_tokens == pool + 1
    with pytest.raises(ConfigError):
        SpecConfig(num_steps=k, topk=b, num_draft_tokens=pool + 2)


def test_point_ids_and_vllm_conversion() -> None:
    assert SpecConfig.baseline().point_id == "base"
    assert SpecConfig.from_vllm(3) == SpecConfig.chain(3)
    assert SpecConfig.chain(3).point_id == "k3"
    assert SpecConfig(num_steps=3, topk=2, num_draft_tokens=8).point_id == "k3b2n8"


def test_sglang_resolves_the_case_that_started_it_all() -> None:
    spec, (override,) = resolve(num_steps=1, topk=1, num_draft_tokens=16, as_engine="sglang")

    assert spec == SpecConfig.chain(1)
    assert override.asked == "16"
    assert override.resolved == "2"


def test_without_an_engine_a_conflict_is_an_error_and_nothing_changes() -> None:
    with pytest.raises(ConfigError):
        resolve(num_steps=1, topk=1, num_draft_tokens=16)
    with pytest.raises(ConfigError):
        resolve(num_steps=0, topk=1, num_draft_tokens=4)
    with pytest.raises(ConfigError, match="num_draft_tokens is not given"):
        resolve(num_steps=3, topk=2, num_draft_tokens=None)
    spec, overrides = resolve(num_steps=3, topk=2, num_draft_tokens=8)
    assert overrides == ()
    assert spec.num_draft_tokens == 8


def test_vllm_drafts_chains_only() -> None:
    spec, overrides = resolve(num_steps=3, topk=4, num_draft_tokens=16, as_engine="vllm")

    assert spec == SpecConfig.chain(3)
    assert [o.name for o in overrides] == ["topk", "num_draft_tokens"]


def test_strict_loading_coerces_what_is_plain_and_refuses_the_rest() -> None:
    load = load_strict(LoadConfig, {"arrival": "gamma", "request_rate": 3}, source="f.json")
    assert load.arrival is Arrival.GAMMA
    assert load.request_rate == 3.0
    assert load.open_loop


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"arival": "gamma"}, "Did you mean 'arrival'"),
        ({"arrival": "weekly"}, "One of constant, poisson, gamma"),
        ({"concurrency": "4"}, "A int"),
        ({"concurrency": True}, "A int"),
        ({"concurrency": 0}, "At least 1"),
        ({"request_rate": -1}, "positive"),
    ],
)
def test_strict_loading_names_the_key(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_strict(LoadConfig, values, source="f.json")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match="'topk' is missing"):
        load_strict(SpecConfig, {"num_steps": 1, "num_draft_tokens": 2}, source="f.json")


def test_engine_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="dtype"):
        EngineConfig(dtype="int8")
    with pytest.raises(ConfigError, match="threads"):
        EngineConfig(threads=0)


@pytest.mark.parametrize(
    "bad",
    [
        {"request_rate": math.inf},
        {"request_rate": 1e-320},
        {"request_rate": math.nan},
        {"request_rate": 1.0, "burstiness": 2.0},
        {"request_rate": 1.0, "arrival": Arrival.GAMMA, "burstiness": math.inf},
        {"request_rate": 1.0, "arrival": Arrival.GAMMA, "burstiness": 1e-300},
    ],
)
def test_loads_without_due_times_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LoadConfig(**bad)


def test_numbers_that_would_hang_or_kill_the_process_are_refused() -> None:
    with pytest.raises(ConfigError, match="At most 1024"):
        SpecConfig.chain(99_999_999)
    with pytest.raises(ConfigError, match="At most 1024"):
        EngineConfig(threads=100_000)
