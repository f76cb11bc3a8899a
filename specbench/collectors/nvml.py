"""NVML (nvidia-ml-py): which GPUs there are, and one reading of each.

The library is imported when it is asked for, and ``open_nvml`` pairs its init with a shutdown.
Nothing here raises because of a GPU that is not there, is lost or lacks a counter: an absence is
an :class:`Absent`, a counter that cannot be read is missing from the reading.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from specbench.gpu_samples import reason_names

# Return codes of nvml.h (enum nvmlReturn_t).
_UNINITIALIZED, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION = 1, 2, 3, 4
_NOT_FOUND, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND = 6, 9, 12, 13
_GPU_IS_LOST, _RESET_REQUIRED, _VERSION_MISMATCH, _DEPRECATED, _GPU_NOT_FOUND = 15, 16, 25, 26, 28

NO_GPU = frozenset({_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _GPU_NOT_FOUND})
LOST = frozenset(
    {_UNINITIALIZED, _NOT_FOUND, _DRIVER_NOT_LOADED, _GPU_IS_LOST, _RESET_REQUIRED, _GPU_NOT_FOUND}
)
UNSUPPORTED = frozenset(
    {
        _INVALID_ARGUMENT,
        _NOT_SUPPORTED,
        _NO_PERMISSION,
        _FUNCTION_NOT_FOUND,
        _VERSION_MISMATCH,
        _DEPRECATED,
    }
)
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU
_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
_MHZ = 1_000_000

Counter = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Why there is nothing to sample. ``failed``: not for want of a GPU, NVML does not work."""

    reason: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or one MIG instance of it. ``instances`` is empty unless MIG is on."""

    label: str
    uuid: str
    name: str
    handle: Any
    mig: bool = False
    instances: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What could be read at ``at_ns``, by counter, and why others could not.

    ``lost`` says that the device is gone. ``gave_up`` are counters that will not be asked for
    again, ``failed`` those that may answer next time; both map to NVML's words.
    """

    at_ns: int
    values: Mapping[str, Any]
    gave_up: Mapping[str, str]
    failed: Mapping[str, str]
    lost: str = ""


def open_nvml(library: Any = None) -> Nvml | Absent:
    """NVML, initialised; close it. ``library`` stands in for the module ``pynvml``."""
    if library is None:
        try:
            import pynvml
        except ModuleNotFoundError:
            return Absent(reason="nvidia-ml-py is not installed", failed=False)
        library = pynvml
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return Absent(reason=f"NVML: {error}", failed=error.value not in NO_GPU)
    nvml = Nvml(library)
    try:
        nvml.look()
    except library.NVMLError as error:
        nvml.close()
        return Absent(reason=f"NVML: {error}", failed=error.value not in NO_GPU)
    if not nvml.gpus:
        nvml.close()
        return Absent(reason="NVML finds no GPU", failed=False)
    return nvml


class Nvml:
    """The initialised library. ``gpus`` in NVML's order, which is that of PCI bus ids."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.driver = ""
        self.gpus: tuple[Gpu, ...] = ()

    def look(self) -> None:
        """Find the driver's version and the GPUs; raises the library's own error."""
        self.driver = _text(self.library.nvmlSystemGetDriverVersion())
        count = self.library.nvmlDeviceGetCount()
        self.gpus = tuple(self._gpu(index) for index in range(count))

    def close(self) -> None:
        """Give the library back; never raises."""
        with contextlib.suppress(self.library.NVMLError):
            self.library.nvmlShutdown()

    def _gpu(self, index: int) -> Gpu:
        library, label = self.library, str(index)
        handle = library.nvmlDeviceGetHandleByIndex(index)
        mig = self._mig_is_on(handle)
        return Gpu(
            label=label,
            uuid=_text(library.nvmlDeviceGetUUID(handle)),
            name=_text(library.nvmlDeviceGetName(handle)),
            handle=handle,
            mig=mig,
            instances=tuple(self._instances(handle, label)) if mig else (),
        )

    def _mig_is_on(self, handle: Any) -> bool:
        try:
            return bool(self.library.nvmlDeviceGetMigMode(handle)[0])
        except self.library.NVMLError:
            return False  # GPUs before Ampere have no MIG mode

    def _instances(self, parent: Any, label: str) -> Iterator[Gpu]:
        for place in range(self.library.nvmlDeviceGetMaxMigDeviceCount(parent)):
            try:
                handle = self.library.nvmlDeviceGetMigDeviceHandleByIndex(parent, place)
            except self.library.NVMLError as error:
                if error.value == _NOT_FOUND:
                    continue  # places may be empty
                raise
            yield Gpu(
                label=f"{label}:mig{place}",
                uuid=_text(self.library.nvmlDeviceGetUUID(handle)),
                name=_text(self.library.nvmlDeviceGetName(handle)),
                handle=handle,
            )

    def clocks(self, gpu: Gpu) -> tuple[int | None, int | None]:
        """SM clocks in MHz: the highest, and the application clock that was chosen, if known."""
        found: list[int | None] = []
        for name in ("nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetApplicationsClock"):
            try:
                found.append(int(_either(self.library, (name,), gpu.handle, _SM_CLOCK)))
            except self.library.NVMLError:
                found.append(None)
        return found[0], found[1]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _either(library: Any, names: tuple[str, ...], *args: Any) -> Any:
    """The first of ``names`` that binding and driver know: newer functions replace older ones."""
    *others, last = names
    for name in others:
        if hasattr(library, name):
            try:
                return getattr(library, name)(*args)
            except library.NVMLError as error:
                if error.value != _FUNCTION_NOT_FOUND:
                    raise
    if not hasattr(library, last):
        raise library.NVMLError(_FUNCTION_NOT_FOUND)
    return getattr(library, last)(*args)


def _reasons(library: Any, handle: Any) -> tuple[str, ...]:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return reason_names(int(_either(library, names, handle)))


def _temperature(library: Any, handle: Any) -> int:
    names = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    return int(_either(library, names, handle, _CORE_SENSOR))


def _memory(library: Any, handle: Any) -> tuple[int, int]:
    memory = library.nvmlDeviceGetMemoryInfo(handle)
    return int(memory.used), int(memory.total)


# Energy comes first: the time of a reading is taken just before it.
OF_INSTANCE: Mapping[str, Counter] = MappingProxyType({"memory": _memory})
OF_GPU: Mapping[str, Counter] = MappingProxyType(
    {
        "energy": lambda lib, h: lib.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,  # from mJ
        "power": lambda lib, h: lib.nvmlDeviceGetPowerUsage(h) / 1000,  # from mW
        "utilisation": lambda lib, h: lib.nvmlDeviceGetUtilizationRates(h).gpu / 100,
        "sm_clock": lambda lib, h: lib.nvmlDeviceGetClockInfo(h, _SM_CLOCK) * _MHZ,
        "memory_clock": lambda lib, h: lib.nvmlDeviceGetClockInfo(h, _MEMORY_CLOCK) * _MHZ,
        "temperature": _temperature,
        "clock_reasons": _reasons,
        **OF_INSTANCE,
    }
)


class Reader:
    """Reads one GPU or instance again and again; a counter that it lacks is asked for once.

    ``counters`` are those that are still asked for.
    """

    def __init__(self, library: Any, gpu: Gpu, counters: Mapping[str, Counter]) -> None:
        self.gpu = gpu
        self.counters = dict(counters)
        self._library = library

    def read(self) -> Reading:
        """One reading."""
        values: dict[str, Any] = {}
        gave_up: dict[str, str] = {}
        failed: dict[str, str] = {}
        at_ns = time.perf_counter_ns()
        for name, counter in tuple(self.counters.items()):
            try:
                values[name] = counter(self._library, self.gpu.handle)
            except self._library.NVMLError as error:
                if error.value in LOST:
                    return Reading(at_ns=at_ns, values={}, gave_up={}, failed={}, lost=str(error))
                if error.value in UNSUPPORTED:
                    gave_up[name] = str(error)
                    del self.counters[name]
                else:
                    failed[name] = str(error)
        return Reading(at_ns=at_ns, values=values, gave_up=gave_up, failed=failed)
