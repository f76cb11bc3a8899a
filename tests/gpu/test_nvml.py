"""The real library on a real GPU: what the stand-in claims of it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from specbench.collectors.gpu import GpuSampler
from specbench.collectors.nvml import OF_GPU, Absent, Nvml, Reader, open_nvml
from specbench.gpu_samples import EnergySource

pytestmark = pytest.mark.gpu


@pytest.fixture
def nvml() -> Iterator[Nvml]:
    found = open_nvml()
    if isinstance(found, Absent):
        pytest.skip(found.reason)
    yield found
    found.close()


def test_a_reading_is_of_a_plausible_size(nvml: Nvml) -> None:
    assert nvml.driver[0].isdigit()
    for gpu in nvml.gpus:
        assert gpu.uuid.startswith("GPU-")
        reading = Reader(nvml.library, gpu, OF_GPU).read()
        assert not reading.lost
        assert not reading.failed
        used, total = reading.values["memory"]
        assert 0 <= used <= total
        assert total > 1 << 30
        assert 0 <= reading.values.get("utilisation", 0) <= 1
        assert 0 < reading.values.get("power", 100) < 2000
        assert 10**8 < reading.values.get("sm_clock", 10**9) < 10**10
        assert 0 < reading.values.get("temperature", 40) < 120
        assert not any(r.startswith("bit_") for r in reading.values.get("clock_reasons", ()))


def test_energy_rises_as_power_says(nvml: Nvml) -> None:
    pytest.importorskip("pynvml")
    other = open_nvml()  # the sampler closes its own
    assert isinstance(other, Nvml)
    with GpuSampler(other, other.gpus[:1], interval_s=0.1) as sampler:
        time.sleep(2)
        taken = [s for s in sampler.take() if not s.is_instance]

    assert len(taken) > 5
    assert sampler.caveats == ()
    sums = [s.energy_j for s in taken if s.energy_j is not None]
    assert all(a <= b for a, b in pairwise(sums))
    watts = [s.power_w for s in taken if s.power_w is not None]
    if sums and watts and taken[0].energy_from is EnergySource.COUNTER:
        seconds = (taken[-1].at_ns - taken[0].at_ns) / 1e9
        assert 0.5 * min(watts) < sums[-1] / seconds < 2 * max(watts)
