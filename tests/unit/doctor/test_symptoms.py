"""Shapes: each is claimed on counts made with it, and not on healthy counts of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.doctor.findings import Finding, Severity
from specbench.doctor.symptoms import diagnose
from specbench.doctor.symptoms_data import Observed, from_counts, from_gauge, from_numbers
from specbench.errors import ConfigError


def shapes(found: tuple[Finding, ...]) -> list[str]:
    return [finding.code.partition(".")[2] for finding in found]


def counted(conditional: list[float], steps: int = 4000) -> Observed:
    reached = np.cumprod(conditional)
    return from_counts("server", steps, [round(steps * share) for share in reached])


@pytest.mark.parametrize(
    ("conditional", "shape"),
    [
        ([0.0, 0.0, 0.0], "one"),
        ([0.004, 0.5], "one"),
        ([0.36, 0.36, 0.36], "first"),  # one layer off
        ([0.12, 0.2], "first"),
        ([0.89, 0.53, 0.5], "tail"),
        ([0.75, 0.1], "tail"),  # parallel drafting without its mask
        ([0.751, 0.755, 0.799], "none"),  # Llama-3.3-70B in vllm #50170
        ([0.622, 0.572, 0.570, 0.586, 0.504], "none"),  # a published gpt-oss head
        ([0.84, 0.87, 0.875, 0.905], "none"),  # rises, as easy text survives
    ],
)
def test_shape_of_positions(conditional: list[float], shape: str) -> None:
    assert shapes(diagnose(counted(conditional))) == [shape]


def test_the_head_of_vllm_50170_without_ids() -> None:
    (found,) = diagnose(from_numbers(None, [0.036, 0.0006, 0.0], 5000))
    assert found.code == "shape.first"
    assert "F1" in found.failures
    assert any("default layer ids" in fact.text for fact in found.evidence)


def test_one_is_told_by_a_healthy_number_of_steps_only() -> None:
    assert shapes(diagnose(counted([0.0, 0.0], steps=40))) == ["unsure"]
    assert shapes(diagnose(counted([0.0, 0.0], steps=4000))) == ["one"]


@settings(max_examples=60, deadline=None)
@given(st.integers(20, 5000), st.integers(0, 2**32 - 1))
def test_a_healthy_head_is_not_accused(steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, accepted = steps, []
    for share in (0.75, 0.76, 0.75, 0.74):
        before = int(rng.binomial(before, share))
        accepted.append(before)
    found = diagnose(from_counts("server", steps, accepted))
    assert set(shapes(found)) <= {"none", "unsure"}


def test_numbers_without_steps_claim_nothing() -> None:
    assert shapes(diagnose(from_numbers(1.0, [], None))) == ["unsure"]
    assert shapes(diagnose(from_numbers(None, [0.1, 0.01], None))) == ["unsure"]
    assert shapes(diagnose(from_gauge("gauge", 1.05))) == ["unsure"]


@pytest.mark.parametrize(
    ("conditional", "shape"),
    [
        ([0.75, 0.74, 0.76], "none"),
        ([0.55, 0.54, 0.56], "flat"),
        ([0.55, 0.74, 0.75], "first"),
        ([0.75, 0.5, 0.5], "tail"),
    ],
)
def test_against_what_a_probe_expects(conditional: list[float], shape: str) -> None:
    assert shapes(diagnose(counted(conditional), expected=(0.75, 0.75, 0.75))) == [shape]


def test_right_acceptance_may_still_be_slower() -> None:
    seen = counted([0.68, 0.67, 0.67, 0.68, 0.7], steps=20000)
    (found,) = diagnose(seen, break_even=2.96)
    assert found.code == "speed.break_even"
    assert found.severity is Severity.WARNING
    assert shapes(diagnose(seen, break_even=2.0)) == ["none"]


@pytest.mark.parametrize(
    "numbers",
    [
        (0.5, [], None),
        (float("nan"), [], None),
        (None, [0.5, 0.6], None),
        (None, [1.5], None),
        (3.0, [0.5, 0.2], None),
        (1.7, [0.5, 0.2], 0),
    ],
)
def test_impossible_numbers_are_refused(
    numbers: tuple[float | None, list[float], int | None],
) -> None:
    with pytest.raises(ConfigError):
        from_numbers(*numbers)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ConfigError, match="rises"):
        from_counts("server", 10, [11])
    with pytest.raises(ConfigError, match="drafted anything"):
        from_counts("server", 0, [])
