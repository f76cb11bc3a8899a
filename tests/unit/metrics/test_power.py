import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.estimate import Estimate, Evidence
from specbench.metrics.power import minimum_detectable_effect, noise_floor, power_of


def seen(low: float | None, high: float | None, value: float = 1.0) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=30, unit="x", evidence=Evidence.STEPS)


def around(value: float, half: float) -> Estimate:
    return seen(value * math.exp(-half), value * math.exp(half), value)


@given(st.floats(0.2, 5), st.floats(1e-3, 0.5))
def test_the_effect_does_not_hang_on_the_speedup_itself(value: float, half: float) -> None:
    effect = minimum_detectable_effect(around(value, half))
    assert effect == pytest.approx(minimum_detectable_effect(around(1.0, half)))
    assert effect is not None
    assert effect > math.expm1(half)


@given(st.floats(1e-3, 0.5), st.floats(0.05, 0.95))
def test_power_and_effect_are_inverse(half: float, power: float) -> None:
    effect = minimum_detectable_effect(around(1, half), power)
    assert effect is not None
    assert power_of(around(1, half), effect) == pytest.approx(power)
    assert power_of(around(1, half), 1 / (1 + effect) - 1) == pytest.approx(power)


@given(st.floats(1e-3, 0.5), st.floats(0.001, 0.2))
def test_power_grows_with_the_effect(half: float, effect: float) -> None:
    smaller, larger = (power_of(around(1, half), e) for e in (effect, 1.5 * effect))
    assert smaller is not None
    assert larger is not None
    assert smaller <= larger


def test_floor_is_the_farther_end() -> None:
    assert noise_floor(seen(0.99, 1.04)) == pytest.approx(0.04)
    assert noise_floor(seen(0.9, 1.01)) == pytest.approx(1 / 0.9 - 1)


def test_without_interval_nothing_is_promised() -> None:
    bare = seen(None, None)
    assert minimum_detectable_effect(bare) is None
    assert minimum_detectable_effect(None) is None
    assert power_of(bare, 0.05) is None
    assert noise_floor(bare) is None
    assert noise_floor(None) is None


def test_no_spread_at_all_finds_everything() -> None:
    assert power_of(seen(1.0, 1.0), 0.01) == 1.0
