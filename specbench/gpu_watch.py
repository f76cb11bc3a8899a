"""GPUs beside a run: which of them are sampled, and what a run directory keeps of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from specbench import gpu_samples
from specbench.backends.base import BackendFacts
from specbench.collectors.exposition import is_loopback
from specbench.collectors.gpu import DEFAULT_INTERVAL_S, GpuSampler
from specbench.collectors.gpu_series import GpuSeries
from specbench.collectors.nvml import Absent, Gpu, Nvml, open_nvml
from specbench.collectors.visible import ORDER_VARIABLE, VARIABLE, order_is_a_guess, visible
from specbench.conclude import add_caveats
from specbench.estimate import Caveat, Severity
from specbench.gpu_samples import GpuSample
from specbench.grown_file import has_a_line
from specbench.store import RunDir

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the work is done: an outside server's address, or the engine's device in here."""

    server: str | None = None
    device: str = "auto"

    def may_use_gpus(self, facts: BackendFacts) -> bool:
        """True for an engine on CUDA, and for a server on this machine."""
        if self.server is not None:
            return is_loopback(urlsplit(self.server).hostname or "")
        return facts.device.get("compute_capability", "").startswith("sm_")


class GpuWatch:
    """What is sampled beside a run; does nothing where there is no GPU.

    ``facts`` are for provenance. ``series`` are the GPU series of the catalogue, None when
    nothing is sampled.
    """

    def __init__(
        self,
        sampler: GpuSampler | None = None,
        *,
        facts: Mapping[str, str] | None = None,
        caveats: Sequence[Caveat] = (),
    ) -> None:
        self.facts = dict(facts or {})
        self.series = None if sampler is None else GpuSeries(sampler)
        self._sampler = sampler
        self._own = tuple(caveats)

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What is to be held against all GPU figures of the run."""
        return (*self._own, *(self._sampler.caveats if self._sampler else ()))

    def take(self) -> tuple[GpuSample, ...]:
        """The samples of a block that has just ended, with one from before and one from after."""
        return self._sampler.take() if self._sampler else ()

    def save(self, run_dir: RunDir, samples: Sequence[GpuSample]) -> None:
        """Keep ``samples`` with the block that was saved last, and what went wrong until now.

        Raises:
            OutputError: gpu.csv cannot be written.
        """
        if samples:
            seq = len(run_dir.blocks()) - 1
            kept = has_a_line(run_dir.path / gpu_samples.FILE)
            head = "" if kept else gpu_samples.header()
            run_dir.append(gpu_samples.FILE, head + gpu_samples.lines(seq, samples))
        add_caveats(run_dir, "", self.caveats)


@contextlib.contextmanager
def watch_gpus(
    place: Place,
    facts: BackendFacts,
    *,
    interval_s: float = DEFAULT_INTERVAL_S,
    keep: bool = True,
    tell: Tell = lambda text: None,
    library: Any = None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[GpuWatch]:
    """Sample the GPUs that ``place`` uses until the block ends.

    Args:
        place: where the work is done.
        facts: of the opened backend.
        interval_s: seconds between two samples; 0 samples nothing.
        keep: keep samples for ``take``; False for a service that only publishes.
        tell: hears what goes wrong, each once.
        library: stands in for the module ``pynvml``.
        environ: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER say which GPUs are used.
    """
    if not interval_s or not place.may_use_gpus(facts):
        yield GpuWatch()
        return
    nvml = open_nvml(library)
    if isinstance(nvml, Absent):
        said = nvml.failed or place.server is None
        yield GpuWatch(caveats=_not_sampled(nvml.reason, tell) if said else ())
        return
    ranks = _ranks(facts)
    gpus, caveats = _used(nvml.gpus, place, ranks, environ)
    if not gpus:
        nvml.close()
        reason = _none_found(place, ranks, environ.get(VARIABLE))
        yield GpuWatch(caveats=_not_sampled(reason, tell) if place.server is None else ())
        return
    for caveat in caveats:
        tell(caveat.text)
    about = _facts(nvml, gpus, interval_s)
    with GpuSampler(nvml, gpus, interval_s=interval_s, keep=keep, tell=tell) as sampler:
        yield GpuWatch(sampler, facts=about, caveats=caveats)


def _not_sampled(reason: str, tell: Tell) -> tuple[Caveat, ...]:
    text = f"GPUs are not sampled, their figures stay empty: {reason}"
    tell(text)
    return (Caveat(code="gpu_not_sampled", severity=Severity.NOTE, text=text),)


def _none_found(place: Place, ranks: int, named: str | None) -> str:
    if ranks == 1:
        return f"{VARIABLE}={named!r} and device {place.device!r} name no GPU that NVML finds"
    count = ranks or "an unknown number of"
    return f"{VARIABLE}={named!r} does not name a GPU that NVML finds for each of {count} ranks"


def _ranks(facts: BackendFacts) -> int:
    """GPUs of one engine; 0 where the facts do not tell (``Ranks.facts``)."""
    said = facts.device.get("tensor_parallel", "1")
    return int(said) if said.isdecimal() else 0


def _of_engine(seen: Sequence[Gpu], device: str, ranks: int) -> tuple[Gpu, ...]:
    """The GPUs of an engine in here: rank i computes on CUDA's device i; none if one is missing."""
    first = int(device.partition(":")[2] or 0) if ranks == 1 else 0
    found = tuple(seen[first : first + ranks])
    return found if len(found) == ranks else ()


def _used(
    machine: Sequence[Gpu], place: Place, ranks: int, environ: Mapping[str, str]
) -> tuple[tuple[Gpu, ...], tuple[Caveat, ...]]:
    """The GPUs that the run uses, and what is doubtful about that."""
    named = environ.get(VARIABLE)
    gpus = visible(machine, named)
    caveats = []
    if place.server is None:
        gpus = _of_engine(gpus, place.device, ranks)
        if order_is_a_guess(machine, named, environ.get(ORDER_VARIABLE)):
            text = (
                "GPUs of different models are told apart by index, and CUDA may count otherwise "
                f"than NVML: set {ORDER_VARIABLE}=PCI_BUS_ID to be sure which one is sampled"
            )
            caveats.append(Caveat(code="gpu_by_index", severity=Severity.WARNING, text=text))
    elif gpus:
        names = ", ".join(gpu.label for gpu in gpus)
        text = (
            f"the server is taken to use GPU {names} and nobody else to: its GPU figures are "
            f"those of all that {VARIABLE} shows here"
        )
        caveats.append(Caveat(code="gpu_assumed", severity=Severity.NOTE, text=text))
    if any(":" in gpu.label for gpu in gpus):
        text = (
            "power and energy of a MIG instance are those of its whole GPU, others' work included"
        )
        caveats.append(Caveat(code="gpu_shared", severity=Severity.WARNING, text=text))
    return gpus, tuple(caveats)


def _facts(nvml: Nvml, gpus: Sequence[Gpu], interval_s: float) -> dict[str, str]:
    """For provenance: driver, names and clocks. NVML cannot tell whether clocks are locked."""
    facts = {"gpu_driver": nvml.driver, "gpu_interval_s": f"{interval_s:g}"}
    for gpu in nvml.gpus:
        parts = [part for part in gpu.instances if part in gpus]
        if gpu not in gpus and not parts:
            continue
        facts[f"gpu_{gpu.label}"] = ", ".join([gpu.name, *(part.name for part in parts)])
        highest, chosen = nvml.clocks(gpu)
        if highest is not None:
            facts[f"gpu_{gpu.label}_sm_clock_max_mhz"] = str(highest)
        if chosen is not None:
            facts[f"gpu_{gpu.label}_sm_clock_application_mhz"] = str(chosen)
    return facts
