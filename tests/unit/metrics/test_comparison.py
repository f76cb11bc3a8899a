from __future__ import annotations

import math
from typing import Any

import pytest

from specbench.estimate import Estimate, Evidence
from specbench.fingerprint import Difference
from specbench.metrics.arms import ArmKey, Cell
from specbench.metrics.comparison import Change, Compared, Comparison, change_of, compare
from specbench.metrics.curves import Curve, Unit
from specbench.metrics.stats import Interval

CELL = Cell(workload="w", temperature=0.0, batch_size=1)


def estimate(value: float, half: float = 0.01) -> Estimate:
    return Estimate(
        value=value,
        low=value * math.exp(-half),
        high=value * math.exp(half),
        n=30,
        unit="x",
        evidence=Evidence.STEPS,
    )


def units(tokens: int, prompts: int = 20) -> tuple[Unit, ...]:
    return tuple(
        Unit(workload="w", prompt=f"p{i}", tokens=tokens + i % 3, steps=10) for i in range(prompts)
    )


def curve(**changed: Any) -> Curve:
    values: dict[str, Any] = {
        "key": ArmKey(cell=CELL, point_id="k3"),
        "category": "all",
        "accept_length": estimate(3.0),
        "survival": (),
        "speedup": estimate(2.0),
        "output_tok_s": None,
        "lossless": "exact",
        "invalid": (),
        "units": (),
        "timings": (),
    }
    return Curve(**(values | changed))


def held(base: Curve, head: Curve, *differences: Difference, margin: float = 0.03) -> Comparison:
    return compare([base], [head], differences, margin=margin)


def row(comparison: Comparison, figure: str) -> Compared:
    (found,) = (one for one in comparison.rows if one.figure == figure)
    return found


@pytest.mark.parametrize(
    ("low", "value", "high", "change"),
    [
        (0.90, 0.93, 0.96, Change.WORSE),
        (0.96, 0.98, 0.99, Change.UNCLEAR),  # shown to be lower, but by less than the margin
        (0.98, 0.99, 0.999, Change.SAME),
        (0.99, 1.00, 1.01, Change.SAME),
        (0.90, 0.95, 1.01, Change.UNCLEAR),
        (1.01, 1.06, 1.10, Change.BETTER),
    ],
)
def test_what_a_ratio_shows(low: float, value: float, high: float, change: Change) -> None:
    assert change_of(Interval(value=value, low=low, high=high, n=30), 0.03) is change


def test_no_interval_shows_nothing() -> None:
    ratio = Interval(value=0.5, low=None, high=None, n=5)
    assert change_of(ratio, 0.03) is Change.NOT_COMPARABLE


def test_rounding_of_equal_sums_is_no_change() -> None:
    equal = Interval(value=1 - 1e-16, low=1 - 1e-16, high=1 - 1e-16, n=30)
    assert change_of(equal, 0.0) is Change.SAME


def test_a_fallen_accept_length_is_worse_and_decides() -> None:
    result = held(curve(units=units(30)), curve(units=units(27)))
    assert row(result, "accept length").change is Change.WORSE
    assert row(result, "speedup").change is Change.SAME
    assert result.change is Change.WORSE


def test_a_category_is_shown_and_does_not_decide() -> None:
    base, head = (curve(category="code", units=units(n)) for n in (30, 20))
    result = compare([curve(), base], [curve(), head], (), margin=0.03)
    worse = [one for one in result.rows if one.change is Change.WORSE]
    assert [(one.category, one.judged) for one in worse] == [("code", False)]
    assert result.change is Change.SAME


@pytest.mark.parametrize(
    ("topic", "length", "speed"),
    [
        ("workload", Change.NOT_COMPARABLE, Change.NOT_COMPARABLE),
        ("machine", Change.SAME, Change.NOT_COMPARABLE),
        ("draft", Change.SAME, Change.SAME),
    ],
)
def test_what_differs_says_what_can_be_compared(topic: str, length: Change, speed: Change) -> None:
    result = held(curve(), curve(), Difference(topic=topic, base="a", head="b"))
    assert row(result, "accept length").change is length
    assert row(result, "speedup").change is speed
    if topic == "workload":
        assert result.change is Change.NOT_COMPARABLE


def test_invalid_figures_are_not_compared() -> None:
    result = held(curve(), curve(invalid=("looping_output",), units=units(9)))
    assert {one.change for one in result.rows} == {Change.NOT_COMPARABLE}
    assert row(result, "speedup").reason == "HEAD is invalid: looping_output"


def test_outputs_that_are_no_longer_the_targets_are_worse() -> None:
    result = held(curve(), curve(lossless="lossy"))
    assert result.change is Change.WORSE
    assert result.lossless == ((curve().key, "exact", "lossy"),)
    assert held(curve(), curve(lossless="inconclusive")).lossless == ()


def test_arms_of_one_run_only_are_named() -> None:
    other = ArmKey(cell=CELL, point_id="k5")
    result = compare([curve(), curve(key=other)], [curve()], (), margin=0.03)
    assert (result.only_base, result.only_head) == ((other,), ())


def test_a_figure_that_head_lacks_is_said() -> None:
    result = held(curve(), curve(speedup=None))
    assert row(result, "speedup").reason == "not measured in HEAD"
