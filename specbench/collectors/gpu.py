"""Samples GPUs in a thread while a run goes on, at a stated interval.

A lost GPU, a counter that stops answering or a driver that hangs costs one message and a caveat,
never the run. Energy is taken from the device's own counter where it has one, and else added up
from sampled power.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from specbench.collectors.energy_sum import EnergySum
from specbench.collectors.nvml import OF_GPU, OF_INSTANCE, Gpu, Nvml, Reader
from specbench.estimate import Caveat, Severity
from specbench.gpu_samples import EnergySource, GpuSample

DEFAULT_INTERVAL_S = 0.2
LEAST_INTERVAL_S = 0.02  # counters of the device change no faster
_PATIENCE_S = 2.0  # for a reading that is under way: a driver may hang
_NS_PER_S = 1_000_000_000

_HUNG = "hung"

Notice = Callable[[str, str, str], None]  # a key, said once; the caveat's code and text


class GpuSampler:
    """Samples ``gpus`` and, of MIG instances, the GPU that they are part of; a context manager.

    Entering takes the first sample and starts the thread; leaving stops it and closes ``nvml``.
    By label of each GPU: ``latest`` are the last samples, without GPUs that are lost; ``energy_j``
    adds up from the first sample and stays when a GPU is lost; ``errors`` counts readings that
    failed.

    Args:
        nvml: open; the sampler closes it.
        gpus: what to sample.
        interval_s: between two samples, in seconds.
        keep: keep the samples for ``take``; otherwise only ``latest`` is known.
        tell: hears each message once, perhaps in the sampler's thread.
    """

    def __init__(
        self,
        nvml: Nvml,
        gpus: Sequence[Gpu],
        *,
        interval_s: float = DEFAULT_INTERVAL_S,
        keep: bool = True,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.interval_s = interval_s
        self.latest: Mapping[str, GpuSample] = {}
        self.energy_j: Mapping[str, float] = {}
        self.errors: Counter[str] = Counter()
        self._nvml = nvml
        self._keep = keep
        self._tell = tell
        self._caveats: Mapping[str, Caveat] = {}
        self._meters = [
            _Meter(Reader(nvml.library, gpu, counters), self._notice)
            for gpu, counters in _rows(nvml.gpus, gpus)
        ]
        self._kept: list[GpuSample] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)

    @property
    def labels(self) -> tuple[str, ...]:
        """What is sampled."""
        return tuple(meter.label for meter in self._meters)

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What went wrong so far."""
        return tuple(self._caveats.values())

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            self._say_hung()  # closing NVML under a call in progress could crash the process
        else:
            self._nvml.close()

    def take(self) -> tuple[GpuSample, ...]:
        """Sample now, and hand over what was kept since the last call.

        The last sample of each GPU is handed over again next time, so that a window that begins
        between two calls has a sample on both sides of its start. A driver that hangs is waited
        for once.
        """
        if not self._lock.acquire(timeout=0 if _HUNG in self._caveats else _PATIENCE_S):
            self._say_hung()
            return ()
        try:
            self._sample_all()
            taken = tuple(self._kept)
            last = {sample.gpu: sample for sample in taken}
            self._kept = [sample for label, sample in last.items() if label in self.latest]
        finally:
            self._lock.release()
        return taken

    def _run(self) -> None:
        """On a fixed schedule; a reading that takes too long leaves out the times it missed."""
        interval_ns = round(self.interval_s * _NS_PER_S)
        due_ns = time.perf_counter_ns() + interval_ns
        while not self._stop.wait(max(0, due_ns - time.perf_counter_ns()) / _NS_PER_S):
            self._sample()
            due_ns = max(due_ns + interval_ns, time.perf_counter_ns())

    def _sample(self) -> None:
        with self._lock:
            self._sample_all()

    def _sample_all(self) -> None:
        now: dict[str, GpuSample] = {}
        for meter in self._meters:
            if meter.lost:
                continue
            sample, failures = meter.sample()
            self.errors[meter.label] += failures
            if sample is not None:
                now[meter.label] = sample
        # Replaced, never changed, as caveats are: another thread may be reading them.
        self.latest = now
        known = {label: s.energy_j for label, s in now.items() if s.energy_j is not None}
        self.energy_j = {**self.energy_j, **known}
        if self._keep:
            self._kept.extend(now.values())

    def _say_hung(self) -> None:
        self.latest = {}
        self._notice(_HUNG, "gpu_lost", "NVML does not answer any more: GPU figures end here")

    def _notice(self, key: str, code: str, text: str) -> None:
        if key not in self._caveats:
            caveat = Caveat(code=code, severity=Severity.WARNING, text=text)
            self._caveats = {**self._caveats, key: caveat}
            self._tell(text)


def _rows(
    machine: Sequence[Gpu], gpus: Sequence[Gpu]
) -> list[tuple[Gpu, Mapping[str, Callable[..., object]]]]:
    """Each GPU that is used, wholly or in part, then the instances of it that are."""
    rows: list[tuple[Gpu, Mapping[str, Callable[..., object]]]] = []
    for whole in machine:
        parts = [part for part in whole.instances if part in gpus]
        if parts or whole in gpus:
            rows.append((whole, OF_GPU))
            rows.extend((part, OF_INSTANCE) for part in parts)
    return rows


class _Meter:
    """One row of samples: reads, says what went wrong once, adds up energy."""

    def __init__(self, reader: Reader, notice: Notice) -> None:
        self.label = reader.gpu.label
        self.lost = False
        self._reader = reader
        self._notice = notice
        self._energy = EnergySum()
        self._answered: set[str] = set()

    def sample(self) -> tuple[GpuSample | None, int]:
        """The sample, None when the GPU is lost, and how many counters failed."""
        reading = self._reader.read()
        if reading.lost:
            self.lost = True
            self._say("lost", "gpu_lost", f"is lost ({reading.lost}): its figures end here")
            return None, 1
        self._say_what_failed(reading.gave_up, reading.failed)
        values = reading.values
        self._answered |= set(values)
        has_counter = "energy" in self._reader.counters
        joules = self._energy.add(
            reading.at_ns, values.get("energy"), values.get("power"), has_counter=has_counter
        )
        source = EnergySource.COUNTER if has_counter else EnergySource.POWER
        if self._energy.was_reset:
            self._say("reset", "gpu_energy_reset", "began its energy counter anew during the run")
        used, total = values.get("memory", (None, None))
        sample = GpuSample(
            at_ns=reading.at_ns,
            gpu=self.label,
            utilisation=values.get("utilisation"),
            memory_used_bytes=used,
            memory_bytes=total,
            power_w=values.get("power"),
            sm_hz=values.get("sm_clock"),
            memory_hz=values.get("memory_clock"),
            temperature_c=values.get("temperature"),
            reasons=values.get("clock_reasons"),
            energy_j=joules,
            energy_from=None if joules is None else source,
        )
        return sample, len(reading.failed) + len(self._answered & set(reading.gave_up))

    def _say_what_failed(self, gave_up: Mapping[str, str], failed: Mapping[str, str]) -> None:
        for name, why in gave_up.items():
            if name in self._answered:  # one that never answered is simply not there
                then = "it is added up from power" if name == "energy" else "that figure ends here"
                text = f"no longer tells {name} ({why}): {then}"
                self._say(f"{name}:gone", "gpu_counter_lost", text)
        for name, why in failed.items():
            self._say(f"{name}:failed", "gpu_samples_missing", f"did not tell {name} once ({why})")

    def _say(self, key: str, code: str, what: str) -> None:
        self._notice(f"{self.label}:{key}", code, f"GPU {self.label} {what}")
