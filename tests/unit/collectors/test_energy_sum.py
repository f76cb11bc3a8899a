"""Energy that adds up, whatever the counter does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specbench.collectors.energy_sum import EnergySum

S = 1_000_000_000


def test_the_counter_is_taken_from_where_it_stood() -> None:
    energy = EnergySum()
    found = [energy.add(t * S, j, 100.0, has_counter=True) for t, j in enumerate((5e6, 5e6 + 70))]
    assert found == [0.0, 70.0]
    assert not energy.was_reset


def test_a_reset_is_bridged_by_power() -> None:
    energy = EnergySum()
    readings = ((0, 500.0), (1, 600.0), (2, 30.0), (3, 130.0))
    found = [energy.add(t * S, j, 100.0, has_counter=True) for t, j in readings]
    assert found == [0.0, 100.0, 200.0, 300.0]
    assert energy.was_reset


def test_a_reset_without_power_counts_what_the_new_counter_shows() -> None:
    energy = EnergySum()
    found = [energy.add(0, j, None, has_counter=True) for j in (500.0, 600.0, 30.0)]
    assert found == [0.0, 100.0, 130.0]


def test_a_counter_that_ends_goes_on_by_power() -> None:
    energy = EnergySum()
    assert energy.add(0, 10.0, 200.0, has_counter=True) == 0.0
    assert energy.add(S, 210.0, 200.0, has_counter=True) == 200.0
    assert energy.add(2 * S, None, 200.0, has_counter=False) == 400.0
    assert energy.add(3 * S, None, 400.0, has_counter=False) == 700.0


def test_a_hole_in_power_is_bridged_by_the_line_across_it() -> None:
    energy = EnergySum()
    readings = ((0, 100.0), (1, None), (2, 300.0))
    found = [energy.add(t * S, None, w, has_counter=False) for t, w in readings]
    assert found == [0.0, None, 400.0]


def test_nothing_known_is_not_zero() -> None:
    energy = EnergySum()
    assert energy.add(0, None, None, has_counter=False) is None
    assert energy.add(S, None, None, has_counter=True) is None


READING = st.tuples(st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1500), st.booleans())


@given(st.lists(READING, max_size=30))
def test_the_sum_never_falls(readings: list[tuple[float | None, float | None, bool]]) -> None:
    energy = EnergySum()
    sums = [
        joules
        for t, (counter, power, has) in enumerate(readings)
        if (joules := energy.add(t * S, counter, power, has_counter=has)) is not None
    ]
    assert sums == sorted(sums)
    assert all(joules >= 0 for joules in sums)
