# ruff: noqa: N802  # the functions have the library's names
"""A scripted stand-in for the module ``pynvml``: boards that a test turns the knobs of.

Draws a constant power, so that the energy of any time is known: watts × seconds. Codes are those
of nvml.h; each function raises as the library would, for a board that is lost, a counter that is
not there, or a call after shutdown.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 1, 2, 3, 4, 6
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST = 9, 10, 12, 13, 15
VERSION_MISMATCH = 18
GIB = 1 << 30


class NVMLError(Exception):
    """As in pynvml: a code in ``value`` and the library's words."""

    words: ClassVar[dict[int, str]] = {
        UNINITIALIZED: "Uninitialized",
        INVALID_ARGUMENT: "Invalid Argument",
        NOT_SUPPORTED: "Not Supported",
        NO_PERMISSION: "Insufficient Permissions",
        NOT_FOUND: "Not Found",
        DRIVER_NOT_LOADED: "Driver Not Loaded",
        TIMEOUT: "Timeout",
        LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
        FUNCTION_NOT_FOUND: "Function Not Found",
        GPU_IS_LOST: "GPU is lost",
        VERSION_MISMATCH: "RM has detected an NVML/RM version mismatch.",
    }

    def __init__(self, value: int) -> None:
        super().__init__(self.words.get(value, f"code {value}"))
        self.value = value


@dataclass(eq=False)
class Board:
    """A GPU, or a MIG instance; it is its own handle. ``errors`` maps function names to codes.

    ``mig`` are the places for instances, None where empty; None for a GPU whose MIG is off.
    ``energy_began_ns`` is when the energy counter stood at 0.
    """

    uuid: str
    name: str = "NVIDIA H200"
    watts: float = 400.0
    utilisation_pct: int = 90
    memory_used: int = 20 * GIB
    memory_total: int = 140 * GIB
    sm_mhz: int = 1980
    memory_mhz: int = 3201
    max_sm_mhz: int = 1980
    temperature_c: int = 55
    reasons: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    lost: bool = False
    mig: tuple[Board | None, ...] | None = None
    is_instance: bool = False
    energy_began_ns: int = field(default_factory=time.perf_counter_ns)


def instance(uuid: str) -> Board:
    """A MIG instance, which answers for its memory only."""
    asked = ("PowerUsage", "TotalEnergyConsumption", "UtilizationRates", "ClockInfo")
    errors = {f"nvmlDeviceGet{name}": NOT_SUPPORTED for name in asked}
    return Board(
        uuid=uuid,
        name="NVIDIA H200 MIG 1g.18gb",
        memory_used=2 * GIB,
        memory_total=18 * GIB,
        errors=errors,
        is_instance=True,
    )


class NvmlStandIn:
    """The functions of pynvml that specbench calls. ``inits`` less ``shutdowns`` must end at 0.

    While ``blocked`` is set every reading waits for it, as with a driver that hangs.
    """

    NVMLError = NVMLError

    def __init__(self, *boards: Board, init_error: int | None = None) -> None:
        self.boards = boards
        self.init_error = init_error
        self.inits = self.shutdowns = 0
        self.calls: Counter[str] = Counter()
        self.free = threading.Event()
        self.free.set()

    def _of(self, board: Board, name: str) -> Board:
        self.calls[name] += 1
        self.free.wait()
        if self.inits <= self.shutdowns:
            raise NVMLError(UNINITIALIZED)
        if board.lost:
            raise NVMLError(GPU_IS_LOST)
        if name in board.errors:
            raise NVMLError(board.errors[name])
        return board

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise NVMLError(self.init_error)
        self.inits += 1

    def nvmlShutdown(self) -> None:
        if self.inits <= self.shutdowns:
            raise NVMLError(UNINITIALIZED)
        self.shutdowns += 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.00.01"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Board:
        return self._of(self.boards[index], "nvmlDeviceGetHandleByIndex")

    def nvmlDeviceGetUUID(self, handle: Board) -> str:
        return self._of(handle, "nvmlDeviceGetUUID").uuid

    def nvmlDeviceGetName(self, handle: Board) -> str:
        return self._of(handle, "nvmlDeviceGetName").name

    def nvmlDeviceGetMigMode(self, handle: Board) -> list[int]:
        on = int(self._of(handle, "nvmlDeviceGetMigMode").mig is not None)
        return [on, on]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Board) -> int:
        return len(handle.mig or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Board, place: int) -> Board:
        found = (handle.mig or ())[place]
        if found is None:
            raise NVMLError(NOT_FOUND)
        return found

    def nvmlDeviceGetMaxClockInfo(self, handle: Board, clock: int) -> int:
        return self._of(handle, "nvmlDeviceGetMaxClockInfo").max_sm_mhz

    def nvmlDeviceGetApplicationsClock(self, handle: Board, clock: int) -> int:
        return self._of(handle, "nvmlDeviceGetApplicationsClock").max_sm_mhz

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Board) -> int:
        board = self._of(handle, "nvmlDeviceGetTotalEnergyConsumption")
        seconds = (time.perf_counter_ns() - board.energy_began_ns) / 1e9
        return round(board.watts * seconds * 1000)

    def nvmlDeviceGetPowerUsage(self, handle: Board) -> int:
        return round(self._of(handle, "nvmlDeviceGetPowerUsage").watts * 1000)

    def nvmlDeviceGetUtilizationRates(self, handle: Board) -> SimpleNamespace:
        board = self._of(handle, "nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=board.utilisation_pct, memory=10)

    def nvmlDeviceGetClockInfo(self, handle: Board, clock: int) -> int:
        board = self._of(handle, "nvmlDeviceGetClockInfo")
        return {1: board.sm_mhz, 2: board.memory_mhz}[clock]

    def nvmlDeviceGetTemperatureV(self, handle: Board, sensor: int) -> int:
        return self._of(handle, "nvmlDeviceGetTemperatureV").temperature_c

    def nvmlDeviceGetTemperature(self, handle: Board, sensor: int) -> int:
        return self._of(handle, "nvmlDeviceGetTemperature").temperature_c

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Board) -> int:
        return self._of(handle, "nvmlDeviceGetCurrentClocksEventReasons").reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Board) -> int:
        return self._of(handle, "nvmlDeviceGetCurrentClocksThrottleReasons").reasons

    def nvmlDeviceGetMemoryInfo(self, handle: Board) -> SimpleNamespace:
        board = self._of(handle, "nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(
            used=board.memory_used,
            total=board.memory_total,
            free=board.memory_total - board.memory_used,
        )
