import dataclasses
from collections.abc import Sequence

import pytest

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Estimate, Evidence
from specbench.metrics.arms import Arm
from specbench.metrics.window_caveats import window_caveats
from specbench.trace import RequestTrace
from tests.unit.metrics.test_validity import arm_of, traces

K3 = SpecConfig.chain(3)
MS = 1_000_000


def found(
    arm: Arm,
    speedup: Estimate | None = None,
    noise: Estimate | None = None,
    spec: SpecConfig = K3,
) -> dict[str, Caveat]:
    return {caveat.code: caveat for caveat in window_caveats(arm, spec, speedup, noise)}


def numbered(
    found: Sequence[RequestTrace], first_ms: float = 20, scale: float = 1.0
) -> list[RequestTrace]:
    """Forwards counted through, the first of them taking ``first_ms``."""
    made, number = [], 0
    for trace in found:
        steps = []
        for step in trace.steps:
            ns = round((first_ms * MS if number == 0 else step.verify_ns) * scale)
            steps.append(dataclasses.replace(step, batch_step=number, verify_ns=ns))
            number += 1
        made.append(dataclasses.replace(trace, steps=tuple(steps)))
    return made


def test_quiet_windows_raise_nothing() -> None:
    assert found(arm_of(numbered(traces()))) == {}


def test_warmup_in_the_window() -> None:
    warm = dataclasses.replace(traces()[0], warmup=True)
    assert set(found(arm_of([warm, *numbered(traces())]))) == {"warmup_in_window"}


def test_a_first_forward_slower_than_usual_but_not_the_slowest_is_a_hiccup() -> None:
    some = numbered(traces(), 500)
    late = some[-1].steps[-1]
    slow = dataclasses.replace(late, verify_ns=501 * MS)
    some[-1] = dataclasses.replace(some[-1], steps=(*some[-1].steps[:-1], slow))
    assert "cold_graphs" not in found(arm_of(some))


@pytest.mark.parametrize(("first_ms", "cold"), [(79, False), (81, True), (500, True)])
def test_cold_graphs_cost_the_first_forward(first_ms: float, cold: bool) -> None:
    seen = found(arm_of(numbered(traces(), first_ms)))
    assert set(seen) == ({"cold_graphs"} if cold else set())
    if cold:
        assert "batch size 1" in seen["cold_graphs"].text


def test_a_slow_forward_later_on_is_no_graph() -> None:
    late = numbered(traces())
    slow = dataclasses.replace(late[9].steps[3], verify_ns=900 * MS)
    late[9] = dataclasses.replace(late[9], steps=(*late[9].steps[:3], slow, *late[9].steps[4:]))
    assert found(arm_of(late)) == {}


def test_other_traffic_shows_in_the_batch() -> None:
    crowded = numbered(traces())
    step = dataclasses.replace(crowded[0].steps[5], batch=2)
    steps = (*crowded[0].steps[:5], step, *crowded[0].steps[6:])
    crowded[0] = dataclasses.replace(crowded[0], steps=steps)
    assert set(found(arm_of(crowded))) == {"other_traffic"}


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=30, unit="x", evidence=Evidence.STEPS)


@pytest.mark.parametrize(("value", "within"), [(1.03, True), (0.98, True), (1.06, False)])
def test_a_speedup_within_the_noise_floor(value: float, within: bool) -> None:
    noise, speedup = estimate(1.0, 0.96, 1.05), estimate(value, value - 0.01, value + 0.01)
    seen = found(arm_of(numbered(traces())), speedup, noise)
    assert ("within_noise_floor" in seen) is within


@pytest.mark.parametrize(("value", "biased"), [(1.03, False), (1.04, True), (0.96, True)])
def test_plain_decoding_that_differs_from_itself(value: float, biased: bool) -> None:
    noise = estimate(value, value / 1.02, value * 1.02)
    seen = found(arm_of(traces(depth=0)), None, noise, SpecConfig.baseline())
    assert ("noise_floor_biased" in seen) is biased
