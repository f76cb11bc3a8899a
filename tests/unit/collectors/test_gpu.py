"""The sampling thread: what it keeps, and what it says when something breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from specbench.collectors import gpu
from specbench.collectors.gpu import GpuSampler
from specbench.collectors.nvml import Nvml, open_nvml
from specbench.collectors.visible import visible
from specbench.gpu_samples import EnergySource
from tests import nvml_stand_in as stand_in
from tests.nvml_stand_in import GIB, Board, NvmlStandIn, instance

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
POWER = "nvmlDeviceGetPowerUsage"


def sampler_of(
    library: NvmlStandIn, *, named: str | None = None, interval_s: float = 60.0, **more: Any
) -> GpuSampler:
    """With its first sample only, unless a shorter interval is asked for."""
    nvml = open_nvml(library)
    assert isinstance(nvml, Nvml)
    return GpuSampler(nvml, visible(nvml.gpus, named), interval_s=interval_s, **more)


def wait_until(true: Callable[[], bool]) -> None:
    end_ns = time.perf_counter_ns() + 20_000_000_000
    while not true():
        assert time.perf_counter_ns() < end_ns, "it did not come true"
        time.sleep(0.005)


def test_the_thread_samples_until_it_is_left_and_the_library_is_given_back() -> None:
    library = NvmlStandIn(Board(uuid="GPU-a"))
    with sampler_of(library, interval_s=0.005) as sampler:
        wait_until(lambda: library.calls[POWER] >= 5)
        taken = sampler.take()

    assert len(taken) >= 5
    assert all(a.at_ns < b.at_ns for a, b in pairwise(taken))
    assert [t.name for t in threading.enumerate()].count("gpu-sampler") == 0
    assert (library.inits, library.shutdowns) == (1, 1)
    calls = library.calls[POWER]
    time.sleep(0.03)
    assert library.calls[POWER] == calls


def test_a_sample_carries_every_figure() -> None:
    with sampler_of(NvmlStandIn(Board(uuid="GPU-a", reasons=0x4))) as sampler:
        first, second = sampler.take()

    assert first.gpu == "0"
    assert (first.utilisation, first.power_w, first.temperature_c) == (0.9, 400.0, 55)
    assert (first.memory_used_bytes, first.memory_bytes) == (20 * GIB, 140 * GIB)
    assert (first.sm_hz, first.memory_hz) == (1_980_000_000, 3_201_000_000)
    assert first.reasons == first.slowed_by == ("sw_power_cap",)
    assert (first.energy_j, first.energy_from) == (0.0, EnergySource.COUNTER)
    assert second.energy_j == pytest.approx(
        400.0 * (second.at_ns - first.at_ns) / 1e9, abs=400 * 0.05
    )


def test_what_is_taken_next_begins_with_what_was_taken_last() -> None:
    with sampler_of(NvmlStandIn(Board(uuid="GPU-a"), Board(uuid="GPU-b"))) as sampler:
        before, after = sampler.take(), sampler.take()

    assert [sample.gpu for sample in before] == ["0", "1", "0", "1"]
    assert after[:2] == before[2:]
    assert [sample.gpu for sample in after] == ["0", "1", "0", "1"]


def test_only_gpus_that_are_used_are_asked() -> None:
    library = NvmlStandIn(Board(uuid="GPU-a", lost=False), Board(uuid="GPU-b"))
    with sampler_of(library, named="GPU-b") as sampler:
        library.boards[0].lost = True
        assert sampler.labels == ("1",)
        assert {sample.gpu for sample in sampler.take()} == {"1"}
        assert sampler.caveats == ()


def test_of_a_mig_instance_the_whole_gpu_gives_power_and_the_part_its_memory() -> None:
    whole = Board(
        uuid="GPU-a",
        mig=(instance("MIG-x"), instance("MIG-y")),
        errors={"nvmlDeviceGetUtilizationRates": stand_in.NOT_SUPPORTED},
    )
    with sampler_of(NvmlStandIn(whole), named="MIG-y") as sampler:
        board, part = sampler.take()[:2]

    assert (board.gpu, board.power_w, board.utilisation) == ("0", 400.0, None)
    assert (part.gpu, part.memory_used_bytes) == ("0:mig1", 2 * GIB)
    assert part.is_instance
    assert (part.power_w, part.energy_j, part.energy_from, part.reasons) == (None,) * 4
    assert sampler.caveats == ()


def test_a_gpu_that_is_lost_is_said_once_and_the_other_goes_on() -> None:
    told: list[str] = []
    library = NvmlStandIn(Board(uuid="GPU-a"), Board(uuid="GPU-b"))
    with sampler_of(library, tell=told.append) as sampler:
        library.boards[0].lost = True
        sampler.take()
        taken = sampler.take()

    assert told == ["GPU 0 is lost (GPU is lost): its figures end here"]
    assert [(c.code, c.text) for c in sampler.caveats] == [("gpu_lost", told[0])]
    assert [sample.gpu for sample in taken] == ["1", "1"]
    assert set(sampler.latest) == {"1"}
    assert sampler.errors == {"0": 1, "1": 0}


def test_without_an_energy_counter_power_is_added_up() -> None:
    library = NvmlStandIn(Board(uuid="GPU-a", errors={ENERGY: stand_in.NOT_SUPPORTED}))
    with sampler_of(library) as sampler:
        first, second = sampler.take()

    assert first.energy_from is second.energy_from is EnergySource.POWER
    assert first.energy_j == 0.0
    assert second.energy_j == pytest.approx(400.0 * (second.at_ns - first.at_ns) / 1e9)
    assert sampler.caveats == ()  # the samples say so themselves
    assert sampler.errors == {"0": 0}


def test_without_power_and_energy_both_are_empty() -> None:
    errors = {ENERGY: stand_in.NOT_SUPPORTED, POWER: stand_in.NO_PERMISSION}
    with sampler_of(NvmlStandIn(Board(uuid="GPU-a", errors=errors))) as sampler:
        sample = sampler.take()[-1]

    assert (sample.energy_j, sample.energy_from, sample.power_w) == (None, None, None)
    assert sample.utilisation == 0.9


@pytest.mark.parametrize(
    ("code", "caveat", "words"),
    [
        (
            stand_in.NOT_SUPPORTED,
            "gpu_counter_lost",
            "no longer tells energy (Not Supported): it is added up from power",
        ),
        (stand_in.TIMEOUT, "gpu_samples_missing", "did not tell energy once (Timeout)"),
    ],
)
def test_a_counter_that_stops_in_the_middle_is_said_once(
    code: int, caveat: str, words: str
) -> None:
    told: list[str] = []
    board = Board(uuid="GPU-a")
    with sampler_of(NvmlStandIn(board), tell=told.append) as sampler:
        board.errors[ENERGY] = code
        sampler.take()
        sampler.take()

    assert len(told) == 1
    assert words in told[0]
    assert [c.code for c in sampler.caveats] == [caveat]
    assert sampler.errors["0"] == (2 if code == stand_in.TIMEOUT else 1)


def test_an_energy_counter_that_begins_anew_goes_on_rising_and_is_said() -> None:
    board = Board(uuid="GPU-a", energy_began_ns=time.perf_counter_ns() - 10**12)
    with sampler_of(NvmlStandIn(board)) as sampler:
        board.energy_began_ns = time.perf_counter_ns()
        taken = (*sampler.take(), *sampler.take()[1:])

    sums = [sample.energy_j or 0.0 for sample in taken]
    assert sums == sorted(sums)
    assert sums[-1] < 400.0 * 60
    assert [c.code for c in sampler.caveats] == ["gpu_energy_reset"]


def test_a_service_keeps_no_samples() -> None:
    with sampler_of(NvmlStandIn(Board(uuid="GPU-a")), keep=False) as sampler:
        assert sampler.take() == ()
        assert set(sampler.latest) == {"0"}


def test_a_driver_that_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_PATIENCE_S", 0.05)
    told: list[str] = []
    library = NvmlStandIn(Board(uuid="GPU-a"))
    with sampler_of(library, interval_s=0.005, tell=told.append) as sampler:
        library.free.clear()
        seen = library.calls.total()
        wait_until(lambda: library.calls.total() > seen)
        taken: list[object] = [sampler.take(), sampler.take()]

    assert taken == [(), ()]
    assert sampler.latest == {}
    assert told == ["NVML does not answer any more: GPU figures end here"]
    assert library.shutdowns == 0  # not under a call in progress
    library.free.set()
    wait_until(lambda: "gpu-sampler" not in {t.name for t in threading.enumerate()})
