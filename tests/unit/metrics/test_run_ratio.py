from __future__ import annotations

import math

import pytest

from benchmarks.compare_alarms import Machine, found_worse
from specbench.estimate import Estimate, Evidence
from specbench.metrics.curves import Curve, Timing, Unit
from specbench.metrics.run_ratio import (
    Spread,
    accept_length_ratio,
    block_spread,
    independent_ratio,
    speedup_ratio,
    widened,
)
from specbench.metrics.stats import Interval
from tests.unit.metrics.test_comparison import curve


def estimate(value: float, half: float | None, n: int = 30) -> Estimate:
    low = None if half is None else value * math.exp(-half)
    high = None if half is None else value * math.exp(half)
    return Estimate(value=value, low=low, high=high, n=n, unit="x", evidence=Evidence.STEPS)


def timed(spec_ms: list[float], blocks: int = 2, plain_ms: float = 64.0) -> Curve:
    return curve(
        timings=tuple(
            Timing(
                workload="w",
                prompt=f"p{i}",
                block=i * blocks // len(spec_ms),
                plain_ns=round(plain_ms * 1e6),
                plain_tokens=16,
                spec_ns=round(ms * 1e6),
                spec_tokens=16,
            )
            for i, ms in enumerate(spec_ms)
        )
    )


def test_equal_counts_leave_no_doubt() -> None:
    units = tuple(Unit(workload="w", prompt=f"p{i}", tokens=20 + i, steps=9) for i in range(12))
    found = accept_length_ratio(curve(units=units), curve(units=units))
    assert found is not None
    assert (found.value, found.low, found.high, found.n) == pytest.approx((1, 1, 1, 12))


def test_accept_length_counts_only_prompts_of_both() -> None:
    base = tuple(Unit(workload="w", prompt=f"p{i}", tokens=30, steps=10) for i in range(14))
    head = tuple(Unit(workload="w", prompt=f"p{i}", tokens=33, steps=10) for i in range(2, 20))
    found = accept_length_ratio(curve(units=base), curve(units=head))
    assert found is not None
    assert found.value == pytest.approx(1.1)
    assert found.n == 12
    assert accept_length_ratio(curve(units=base[:1]), curve(units=head)) is None


def test_a_speedup_ratio_is_of_what_each_run_gained_on_its_own_baseline() -> None:
    base = timed([32.0] * 12)
    head = timed([48.0] * 12, plain_ms=128.0)  # a slower machine, but a larger gain
    spread = block_spread([(base, head)])
    found = speedup_ratio(base, head, spread)
    assert found is not None
    assert found.value == pytest.approx((128 / 48) / (64 / 32))


def test_scatter_between_blocks_widens_the_interval() -> None:
    base = timed([32.0 + 0.01 * i for i in range(24)], blocks=2)
    head = timed([(32.0 if i < 12 else 40.0) + 0.01 * i for i in range(24)], blocks=2)
    spread = block_spread([(base, head)])
    assert spread is not None
    assert spread.sigma == pytest.approx(math.log(40 / 32) / math.sqrt(2), rel=0.02)
    calm = Spread(sigma=0.0, degrees=1, blocks=2)
    wide, narrow = speedup_ratio(base, head, spread), speedup_ratio(base, head, calm)
    assert wide is not None
    assert narrow is not None
    assert wide.low is not None
    assert narrow.low is not None
    assert wide.low < narrow.low < narrow.value == wide.value


def test_one_block_tells_nothing_of_the_scatter() -> None:
    assert block_spread([(timed([32.0] * 12, blocks=1), timed([32.0] * 12, blocks=1))]) is None
    base, head = curve(speedup=estimate(2.0, 0.3)), curve(speedup=estimate(1.0, 0.4))
    found = speedup_ratio(base, head, None)
    assert found is not None
    assert found.value == 0.5
    assert found.high == pytest.approx(0.5 * math.exp(0.5))


def test_one_common_block_leaves_the_speedup_without_an_interval() -> None:
    base, head = timed([32.0] * 24, blocks=1), timed([48.0] * 24, blocks=1)
    assert speedup_ratio(base, head, Spread(sigma=0.1, degrees=1, blocks=2)) is not None
    found = speedup_ratio(base, head, None)
    assert found is not None
    assert (found.low, found.high) == (None, None)
    assert found.value == pytest.approx(32 / 48)


def test_few_requests_have_a_ratio_and_no_interval() -> None:
    found = independent_ratio(estimate(2.0, None, n=5), estimate(3.0, 0.1))
    assert found == Interval(value=1.5, low=None, high=None, n=5)


def test_many_judgements_widen_each() -> None:
    one = Interval(value=1.0, low=math.exp(-0.1), high=math.exp(0.1), n=30)
    assert widened(one, 1) == one
    ten = widened(one, 10)
    assert ten.high is not None
    assert math.log(ten.high) == pytest.approx(0.1 * 2.807 / 1.96, rel=1e-3)


@pytest.mark.parametrize("block", [0.0, 0.05])
def test_equal_runs_are_seldom_called_worse_and_a_slow_arm_is_found(block: float) -> None:
    """At most 2.5 % of equal pairs; 60 simulations with 4 hits or more have odds of 1 in 20."""
    seeds, noise = range(60), Machine(block=block)
    assert found_worse(seeds, machine=noise, prompts=24, arms=3, blocks=3) <= 3 / 60
    slow = found_worse(seeds[:20], machine=noise, prompts=60, arms=2, blocks=6, slower=0.25)
    assert slow >= 0.9
