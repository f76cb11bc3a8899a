"""GPU series: as lines and in a registry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from specbench.collectors import catalogue
from specbench.collectors.gpu import GpuSampler
from specbench.collectors.gpu_series import GpuSeries
from specbench.collectors.nvml import Nvml, open_nvml
from specbench.collectors.visible import visible
from tests import nvml_stand_in as stand_in
from tests.nvml_stand_in import GIB, Board, NvmlStandIn


@contextmanager
def exposed(library: NvmlStandIn) -> Iterator[tuple[GpuSampler, CollectorRegistry]]:
    nvml = open_nvml(library)
    assert isinstance(nvml, Nvml)
    registry = CollectorRegistry()
    with GpuSampler(nvml, visible(nvml.gpus, None), interval_s=60.0) as sampler:
        registry.register(GpuSeries(sampler))
        yield sampler, registry


def test_every_gpu_series_of_the_catalogue_has_a_value() -> None:
    with exposed(NvmlStandIn(Board(uuid="GPU-a", reasons=0x5))) as (_, registry):
        value = registry.get_sample_value
        gpu = {"gpu": "0"}
        assert value("specbench_gpu_utilization_ratio", gpu) == 0.9
        assert value("specbench_gpu_memory_used_bytes", gpu) == 20 * GIB
        assert value("specbench_gpu_memory_bytes", gpu) == 140 * GIB
        assert value("specbench_gpu_power_watts", gpu) == 400
        assert value("specbench_gpu_clock_hertz", {**gpu, "domain": "sm"}) == 1.98e9
        assert value("specbench_gpu_clock_hertz", {**gpu, "domain": "memory"}) == 3.201e9
        assert value("specbench_gpu_temperature_celsius", gpu) == 55
        assert value("specbench_gpu_throttled", {**gpu, "reason": "sw_power_cap"}) == 1
        assert value("specbench_gpu_throttled", {**gpu, "reason": "hw_slowdown"}) == 0
        assert value("specbench_gpu_throttled", {**gpu, "reason": "idle"}) is None
        assert value("specbench_gpu_energy_joules_total", gpu) == 0
        assert value("specbench_gpu_sample_errors_total", gpu) == 0


def test_the_names_are_those_of_the_catalogue() -> None:
    with exposed(NvmlStandIn(Board(uuid="GPU-a"), Board(uuid="GPU-b"))) as (_, registry):
        families = list(text_string_to_metric_families(generate_latest(registry).decode()))

    samples = [sample for family in families for sample in family.samples]
    assert {sample.name for sample in samples} == {n for n in catalogue.CATALOGUE if "gpu_" in n}
    for sample in samples:
        assert set(sample.labels) == set(catalogue.CATALOGUE[sample.name].labels)
        assert sample.labels["gpu"] in ("0", "1")


def test_what_a_gpu_cannot_tell_has_no_series() -> None:
    names = ("TotalEnergyConsumption", "PowerUsage", "UtilizationRates")
    errors = {f"nvmlDeviceGet{name}": stand_in.NOT_SUPPORTED for name in names}
    with exposed(NvmlStandIn(Board(uuid="GPU-a", errors=errors))) as (_, registry):
        page = generate_latest(registry).decode()

    for name in ("power_watts", "energy_joules_total", "utilization_ratio"):
        assert f"specbench_gpu_{name}" not in page
    assert 'specbench_gpu_temperature_celsius{gpu="0"} 55.0' in page


def test_a_lost_gpu_keeps_its_counters_only() -> None:
    library = NvmlStandIn(Board(uuid="GPU-a"))
    with exposed(library) as (sampler, registry):
        time.sleep(0.01)
        sampler.take()
        library.boards[0].lost = True
        sampler.take()
        energy = registry.get_sample_value("specbench_gpu_energy_joules_total", {"gpu": "0"})
        assert energy
        assert energy == sampler.energy_j["0"]
        assert registry.get_sample_value("specbench_gpu_sample_errors_total", {"gpu": "0"}) == 1
        assert registry.get_sample_value("specbench_gpu_power_watts", {"gpu": "0"}) is None


def test_a_name_that_is_taken_is_refused() -> None:
    with exposed(NvmlStandIn(Board(uuid="GPU-a"))) as (sampler, _):
        registry = CollectorRegistry()
        Gauge("specbench_gpu_power_watts", "another", registry=registry)
        with pytest.raises(ValueError, match="gpu_power_watts"):
            registry.register(GpuSeries(sampler))
