import dataclasses
import random
from collections.abc import Callable, Sequence

import pytest

from specbench.estimate import Caveat
from specbench.metrics.arms import gather
from specbench.metrics.drift_caveats import drift_caveats
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.speedup import decode_speedup
from specbench.trace import ArmRun, RequestTrace

PER_BLOCK = 4
Scale = Callable[[int], float]


def steady(block: int) -> float:
    return 1.0


def request(name: str, depth: int, step_ms: float, number: int) -> RequestTrace:
    noise = random.Random(f"{name} {depth}").gauss(0, 0.02)
    made = trace_of([depth] * 12, depth=depth, name=name, step_ms=step_ms * (1 + noise))
    steps = (dataclasses.replace(s, batch_step=number + i) for i, s in enumerate(made.steps))
    return dataclasses.replace(made, steps=tuple(steps), sent_ns=number)


def blocks_of(point: str, scale: Scale, blocks: int, first: float = 1.0) -> list[ArmRun]:
    """``blocks`` blocks whose steps take ``scale`` of the block; the first request ``first``."""
    depth, step_ms = (0, 10.0) if point == "base" else (3, 20.0)
    runs = []
    for block in range(blocks):
        traces = []
        for place in range(PER_BLOCK):
            number = block * PER_BLOCK + place
            slow = first if number == 0 else 1.0
            traces.append(request(f"p{number}", depth, step_ms * scale(block) * slow, 100 * number))
        runs.append(run_of(*traces, point_id=point, block=block))
    return runs


def found(
    spec: Scale = steady, plain: Scale = steady, *, blocks: int = 6, first: float = 1.0
) -> dict[str, Caveat]:
    runs: Sequence[ArmRun] = [
        *blocks_of("base", plain, blocks),
        *blocks_of("k3", spec, blocks, first),
    ]
    baseline, arm = gather(runs).values()
    speedup = decode_speedup(baseline.requests, arm.requests)
    return {caveat.code: caveat for caveat in drift_caveats(arm, baseline, speedup)}


def late(scale: float, of: int) -> Scale:
    return lambda block: scale if 2 * block >= of else 1.0


def test_a_steady_machine_raises_nothing() -> None:
    assert found() == {}


@pytest.mark.parametrize("blocks", [4, 12])
def test_a_drift_that_all_arms_share_is_a_note(blocks: int) -> None:
    seen = found(late(1.4, blocks), late(1.4, blocks), blocks=blocks)
    assert set(seen) == {"step_time_varied"}
    assert "ms in another" in seen["step_time_varied"].text


@pytest.mark.parametrize(("scale", "drifts"), [(1.01, False), (1.2, True), (0.8, True)])
def test_a_drift_of_one_arm_under_few_blocks_breaks_the_interval(
    scale: float, drifts: bool
) -> None:
    seen = found(late(scale, 4), blocks=4)
    assert ("machine_drift" in seen) is drifts
    if drifts:
        assert "first half of the run gives a speedup of 1.99" in seen["machine_drift"].text


def test_slow_blocks_that_the_interval_holds_are_no_drift() -> None:
    def scattered(block: int) -> float:
        return 1.3 if block % 3 == 0 else 1.0

    assert "machine_drift" not in found(scattered, blocks=12)


def test_one_block_has_no_halves() -> None:
    assert found(blocks=1) == {}


@pytest.mark.parametrize(("first", "cold"), [(1.4, False), (2.0, True)])
def test_a_cold_first_request(first: float, cold: bool) -> None:
    seen = found(first=first)
    assert ("cold_start" in seen) is cold
    if cold:
        assert "took 2." in seen["cold_start"].text


def test_a_first_request_among_others_as_slow_is_not_cold() -> None:
    def uneven(block: int) -> float:
        return 2.2 if block % 2 else 1.0

    assert "cold_start" not in found(uneven, blocks=6, first=2.2)
