"""One reading of a GPU, and what is said where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.collectors.nvml import OF_GPU, OF_INSTANCE, Absent, Nvml, Reader, open_nvml
from tests import nvml_stand_in as stand_in
from tests.nvml_stand_in import GIB, Board, NvmlStandIn, instance


def opened(library: NvmlStandIn) -> Nvml:
    nvml = open_nvml(library)
    assert isinstance(nvml, Nvml)
    return nvml


def test_gpus_are_found_in_order_and_the_library_is_given_back() -> None:
    library = NvmlStandIn(Board(uuid="GPU-a"), Board(uuid="GPU-b", name="NVIDIA L4"))
    nvml = opened(library)

    assert nvml.driver == "570.00.01"
    assert [(g.label, g.uuid, g.name) for g in nvml.gpus] == [
        ("0", "GPU-a", "NVIDIA H200"),
        ("1", "GPU-b", "NVIDIA L4"),
    ]
    assert (library.inits, library.shutdowns) == (1, 0)
    nvml.close()
    nvml.close()  # a second time is no error
    assert (library.inits, library.shutdowns) == (1, 1)


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        (stand_in.LIBRARY_NOT_FOUND, False),
        (stand_in.DRIVER_NOT_LOADED, False),
        (stand_in.VERSION_MISMATCH, True),
        (stand_in.NO_PERMISSION, True),
    ],
)
def test_an_init_that_fails_says_why(code: int, failed: bool) -> None:
    library = NvmlStandIn(Board(uuid="GPU-a"), init_error=code)

    absent = open_nvml(library)

    assert absent == Absent(reason=f"NVML: {stand_in.NVMLError(code)}", failed=failed)
    assert library.shutdowns == 0


def test_no_gpu_and_a_lost_one_give_the_library_back() -> None:
    empty, lost = NvmlStandIn(), NvmlStandIn(Board(uuid="GPU-a", lost=True))

    assert open_nvml(empty) == Absent(reason="NVML finds no GPU", failed=False)
    assert open_nvml(lost) == Absent(reason="NVML: GPU is lost", failed=True)
    assert empty.shutdowns == empty.inits == lost.shutdowns == lost.inits == 1


def test_without_the_package_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)

    assert open_nvml() == Absent(reason="nvidia-ml-py is not installed", failed=False)


def test_instances_of_a_gpu_in_mig_mode_are_found_past_empty_places() -> None:
    parts = (instance("MIG-x"), None, instance("MIG-y"))
    nvml = opened(NvmlStandIn(Board(uuid="GPU-a", mig=parts)))

    (gpu,) = nvml.gpus
    assert gpu.mig
    assert [(part.label, part.uuid) for part in gpu.instances] == [
        ("0:mig0", "MIG-x"),
        ("0:mig2", "MIG-y"),
    ]


def test_a_gpu_without_a_mig_mode_is_whole() -> None:
    board = Board(uuid="GPU-a", errors={"nvmlDeviceGetMigMode": stand_in.NOT_SUPPORTED})
    assert not opened(NvmlStandIn(board)).gpus[0].mig


def test_every_counter_comes_in_base_units() -> None:
    board = Board(uuid="GPU-a", reasons=0x04 | 0x20, energy_began_ns=0)
    library = NvmlStandIn(board)
    reader = Reader(library, opened(library).gpus[0], OF_GPU)

    reading = reader.read()

    values = dict(reading.values)
    assert values.pop("energy") == pytest.approx(board.watts * reading.at_ns / 1e9, rel=1e-3)
    assert values == {
        "power": 400.0,
        "utilisation": 0.9,
        "sm_clock": 1_980_000_000,
        "memory_clock": 3_201_000_000,
        "temperature": 55,
        "clock_reasons": ("sw_power_cap", "sw_thermal_slowdown"),
        "memory": (20 * GIB, 140 * GIB),
    }
    assert not reading.lost
    assert not reading.failed
    assert not reading.gave_up


def test_a_counter_that_is_not_there_is_asked_for_once() -> None:
    missing = "nvmlDeviceGetTotalEnergyConsumption"
    board = Board(uuid="GPU-a", errors={missing: stand_in.NOT_SUPPORTED})
    library = NvmlStandIn(board)
    reader = Reader(library, opened(library).gpus[0], OF_GPU)

    first, second = reader.read(), reader.read()

    assert dict(first.gave_up) == {"energy": "Not Supported"}
    assert "energy" not in first.values
    assert not second.gave_up
    assert library.calls[missing] == 1


def test_a_counter_that_is_busy_is_asked_again() -> None:
    board = Board(uuid="GPU-a", errors={"nvmlDeviceGetPowerUsage": stand_in.TIMEOUT})
    library = NvmlStandIn(board)
    reader = Reader(library, opened(library).gpus[0], OF_GPU)

    first = reader.read()
    board.errors.clear()

    assert dict(first.failed) == {"power": "Timeout"}
    assert "power" not in first.values
    assert reader.read().values["power"] == 400.0


def test_a_lost_gpu_is_said_to_be() -> None:
    board = Board(uuid="GPU-a")
    library = NvmlStandIn(board)
    reader = Reader(library, opened(library).gpus[0], OF_GPU)
    board.lost = True

    reading = reader.read()
    assert (reading.lost, dict(reading.values)) == ("GPU is lost", {})


def test_an_instance_is_asked_for_its_memory_only() -> None:
    library = NvmlStandIn(Board(uuid="GPU-a", mig=(instance("MIG-x"),)))
    part = opened(library).gpus[0].instances[0]

    reading = Reader(library, part, OF_INSTANCE).read()

    assert dict(reading.values) == {"memory": (2 * GIB, 18 * GIB)}
    assert not reading.gave_up


class OldBinding(NvmlStandIn):
    """A binding from before two functions got new names."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"):
            raise AttributeError(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("old_driver", [False, True])
def test_older_bindings_and_drivers_answer_under_older_names(old_driver: bool) -> None:
    board = Board(uuid="GPU-a", temperature_c=61, reasons=0x40)
    if old_driver:
        for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"):
            board.errors[name] = stand_in.FUNCTION_NOT_FOUND
    library = NvmlStandIn(board) if old_driver else OldBinding(board)

    reading = Reader(library, opened(library).gpus[0], OF_GPU).read()

    assert reading.values["temperature"] == 61
    assert reading.values["clock_reasons"] == ("hw_thermal_slowdown",)


def test_clocks_that_are_not_told_are_none() -> None:
    board = Board(uuid="GPU-a", errors={"nvmlDeviceGetApplicationsClock": stand_in.NOT_SUPPORTED})
    nvml = opened(NvmlStandIn(board))
    assert nvml.clocks(nvml.gpus[0]) == (1980, None)


def test_the_stand_in_has_only_functions_of_the_library() -> None:
    pynvml = pytest.importorskip("pynvml")
    names = [name for name in vars(NvmlStandIn) if name.startswith("nvml")]
    assert len(names) > 15
    assert all(callable(getattr(pynvml, name, None)) for name in names)
    assert stand_in.GPU_IS_LOST == pynvml.NVML_ERROR_GPU_IS_LOST
    assert stand_in.NOT_SUPPORTED == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert stand_in.VERSION_MISMATCH == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM, pynvml.NVML_TEMPERATURE_GPU) == (1, 2, 0)
