"""What GPUs did while a run was measured, and ``gpu.csv``, which keeps it in the run directory.

A row is one GPU at one time. ``seq`` is the number of the block (in the order of saving, as in
steps.parquet) that the row was taken for; times compare only within a block, since a resumed run
may have another clock. The rows of a block begin with one from before it.
"""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from specbench.errors import OutputError

FILE = "gpu.csv"

# Bits of NVML's clocks event reasons (nvml.h, group nvmlClocksEventReasons).
REASONS: Mapping[int, str] = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
# An idle GPU, or clocks that somebody chose, is not slowed.
CHOSEN = frozenset({"idle", "application_clocks", "display_clocks"})


class EnergySource(enum.StrEnum):
    """COUNTER: the device adds up its energy; POWER: sampled power was integrated over time."""

    COUNTER = "counter"
    POWER = "power"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU, or one MIG instance, at ``at_ns`` of ``time.perf_counter_ns``; None: not known.

    ``gpu`` is the index that NVML gives, for an instance ``index:migN``; an instance has memory
    only, the rest is its whole GPU's. ``utilisation`` is the share of time with a kernel running.
    ``reasons`` name what holds the clocks down. ``energy_j`` adds up from when sampling began.
    """

    at_ns: int
    gpu: str
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    power_w: float | None = None
    sm_hz: int | None = None
    memory_hz: int | None = None
    temperature_c: int | None = None
    reasons: tuple[str, ...] | None = None
    energy_j: float | None = None
    energy_from: EnergySource | None = None

    @property
    def is_instance(self) -> bool:
        """True for a MIG instance."""
        return ":" in self.gpu

    @property
    def slowed_by(self) -> tuple[str, ...]:
        """The reasons that take speed away."""
        return tuple(reason for reason in self.reasons or () if reason not in CHOSEN)


COLUMNS = ("seq", *(field.name for field in dataclasses.fields(GpuSample)))
_WHOLE = frozenset(
    {"seq", "at_ns", "memory_used_bytes", "memory_bytes", "sm_hz", "memory_hz", "temperature_c"}
)
_NO_REASON = "none"


def reason_names(mask: int) -> tuple[str, ...]:
    """The names of the bits of NVML's clocks event reasons; an unknown bit by its value.

    >>> reason_names(0x24), reason_names(0), reason_names(0x8001)
    (('sw_power_cap', 'sw_thermal_slowdown'), (), ('idle', 'bit_0x8000'))
    """
    bits = (1 << place for place in range(mask.bit_length()))
    return tuple(REASONS.get(bit, f"bit_{bit:#x}") for bit in bits if mask & bit)


def header() -> str:
    """The first line of ``gpu.csv``."""
    return ",".join(COLUMNS) + "\n"


def lines(seq: int, samples: Iterable[GpuSample]) -> str:
    """``samples`` of block ``seq`` as lines of ``gpu.csv``; empty cells are not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for sample in samples:
        values = (_cell(getattr(sample, name)) for name in COLUMNS[1:])
        writer.writerow([seq, *values])
    return out.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "|".join(value) or _NO_REASON
    return f"{value:.12g}" if isinstance(value, float) else value


def parse(text: str, source: str) -> dict[int, tuple[GpuSample, ...]]:
    """The samples of each block by its number; the inverse of ``header`` and ``lines``.

    Raises:
        OutputError: a line is not what ``lines`` writes; ``source`` and the line are named.
    """
    found: dict[int, list[GpuSample]] = {}
    rows = csv.reader(io.StringIO(text))
    if tuple(next(rows, ())) != COLUMNS:
        raise OutputError(f"{source} begins with other columns.", expected=",".join(COLUMNS))
    for number, row in enumerate(rows, start=2):
        try:
            values = dict(zip(COLUMNS, row, strict=True))
            found.setdefault(int(values.pop("seq")), []).append(_sample(values))
        except ValueError as error:
            raise OutputError(
                f"{source} line {number} is damaged: {error}.",
                todo="Delete the file; the report is rebuilt without energy.",
            ) from error
    return {seq: tuple(samples) for seq, samples in found.items()}


def _sample(row: Mapping[str, str]) -> GpuSample:
    known = {name: _value(name, text) for name, text in row.items() if text}
    return GpuSample(**known)  # type: ignore[arg-type]  # by name; _value gives the field's type


def _value(name: str, text: str) -> str | int | float | tuple[str, ...]:
    if name in _WHOLE:
        return int(text)
    match name:
        case "gpu":
            return text
        case "reasons":
            return () if text == _NO_REASON else tuple(text.split("|"))
        case "energy_from":
            return EnergySource(text)
    return float(text)
