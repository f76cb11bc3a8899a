"""What the samples of the GPUs hold against an arm."""

from __future__ import annotations

import dataclasses
from typing import Any

from specbench.estimate import Severity
from specbench.gpu_samples import EnergySource, GpuSample
from specbench.metrics.example import MS
from specbench.metrics.gpu_caveats import gpu_caveats
from tests.unit.metrics.test_energy import arm_of, block_of, drawn, of, request

ARM = arm_of(block_of(request("a")))


def codes(samples: list[GpuSample], **change: Any) -> dict[str, str]:
    changed = [dataclasses.replace(sample, **change) for sample in samples]
    return {c.code: c.text for c in gpu_caveats(ARM, of(ARM, changed))}


def test_a_good_run_has_none() -> None:
    good = codes(drawn(400.0), energy_from=EnergySource.COUNTER, reasons=("idle",), sm_hz=10**9)
    assert good == {}


def test_without_samples_there_are_none() -> None:
    assert gpu_caveats(ARM, {}) == ()


def test_few_samples() -> None:
    assert "holds 1 samples" in codes(drawn(400.0, every_ms=200, to_ms=350))["gpu_few_samples"]
    one_of_two = [*drawn(400.0), *drawn(1.0, gpu="1", every_ms=200, to_ms=350)]
    assert "holds 1 samples" in codes(one_of_two)["gpu_few_samples"]


def test_blocks_without_energy_are_counted() -> None:
    arm = arm_of(
        block_of(request("a")), block_of(request("b"), block=1), block_of(request("c"), block=2)
    )
    lost = drawn(400.0, to_ms=200)
    (partial, *_) = gpu_caveats(arm, of(arm, drawn(400.0), lost, []))
    assert (partial.code, partial.severity) == ("gpu_energy_partial", Severity.WARNING)
    assert partial.text.startswith("energy is known of 1 of 3 blocks")


def test_energy_from_power() -> None:
    assert set(codes(drawn(400.0), energy_from=EnergySource.POWER)) == {"gpu_energy_from_power"}


def test_throttling_counts_in_the_measured_window_only() -> None:
    samples = drawn(400.0)
    before = [
        dataclasses.replace(s, reasons=("hw_slowdown",) if s.at_ns <= 0 else ()) for s in samples
    ]
    within = [
        dataclasses.replace(
            s, reasons=("sw_power_cap", "hw_slowdown") if s.at_ns == 100 * MS else ("idle",)
        )
        for s in samples
    ]
    assert codes(before) == {}
    assert codes(within) == {
        "gpu_throttled": "GPU 0 was slowed in 17% of the samples: sw_power_cap, hw_slowdown"
    }


def test_clocks_that_move() -> None:
    samples = [
        dataclasses.replace(s, sm_hz=(1500 if s.at_ns == 100 * MS else 1980) * 10**6)
        for s in drawn(400.0)
    ]
    assert "between 1500 and 1980 MHz" in codes(samples)["gpu_clocks_vary"]
    steady = [dataclasses.replace(s, sm_hz=s.sm_hz and max(s.sm_hz, 1900 * 10**6)) for s in samples]
    assert codes(steady) == {}
