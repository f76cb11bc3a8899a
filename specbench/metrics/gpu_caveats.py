"""Reservations that the samples of the GPUs raise.

===================== ======== ================================================================
code                  severity when
===================== ======== ================================================================
gpu_few_samples       note     a block's window holds under 5 samples of a GPU
gpu_energy_partial    warning  blocks are left out, since their energy is not known
gpu_energy_from_power note     there is no energy counter: sampled power was added up
gpu_throttled         warning  a GPU was slowed in over 5 % of the samples
gpu_clocks_vary       note     the SM clock moved by over 5 % while the arm was measured
===================== ======== ================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from specbench.estimate import Caveat, Severity
from specbench.gpu_samples import EnergySource, GpuSample
from specbench.metrics.arms import Arm
from specbench.metrics.energy import LEAST_SAMPLES, block_uses
from specbench.metrics.gpu_track import Samples, tracks

SLOWED_SHARE = 0.05
CLOCK_SPREAD = 0.05


def gpu_caveats(arm: Arm, samples: Samples) -> tuple[Caveat, ...]:
    """What is to be held against the GPU figures of ``arm``, and what GPUs did to all others."""
    everything = [s for run in arm.runs for s in samples.get((arm.key, run.block), ())]
    if not everything:
        return ()
    measured: dict[str, list[GpuSample]] = {}
    for run in arm.runs:
        window = run.started_ns, run.started_ns + run.wall_ns
        for gpu, track in tracks(samples.get((arm.key, run.block), ())).items():
            measured.setdefault(gpu, []).extend(track.inside(window))
    found = [*_sparse(arm, samples), *_source(everything)]
    for gpu, its in measured.items():
        found += [*_slowed(gpu, its), *_clocks(gpu, its)]
    return tuple(found)


def _sparse(arm: Arm, samples: Samples) -> Iterable[Caveat]:
    blocks = block_uses(arm, samples)
    told = sum(block.joules is not None for block in blocks)
    if told < len(arm.runs):
        text = f"energy is known of {told} of {len(arm.runs)} blocks, and of these alone it speaks"
        yield Caveat(code="gpu_energy_partial", severity=Severity.WARNING, text=text)
    fewest = min((block.samples for block in blocks), default=0)
    if fewest < LEAST_SAMPLES:
        text = (
            f"a block's window holds {fewest} samples of a GPU, under {LEAST_SAMPLES}: its energy "
            "rests on interpolation; measure longer blocks or sample more often"
        )
        yield Caveat(code="gpu_few_samples", severity=Severity.NOTE, text=text)


def _source(samples: Iterable[GpuSample]) -> Iterable[Caveat]:
    if any(sample.energy_from is EnergySource.POWER for sample in samples):
        text = (
            "a GPU has no energy counter: energy is sampled power added up, and power lags "
            "behind the work by up to a second"
        )
        yield Caveat(code="gpu_energy_from_power", severity=Severity.NOTE, text=text)


def _slowed(gpu: str, samples: Sequence[GpuSample]) -> Iterable[Caveat]:
    slowed = [sample.slowed_by for sample in samples if sample.slowed_by]
    if len(slowed) > SLOWED_SHARE * len(samples):
        names = Counter(reason for reasons in slowed for reason in reasons)
        text = (
            f"GPU {gpu} was slowed in {len(slowed) / len(samples):.0%} of the samples: "
            + ", ".join(name for name, _ in names.most_common())
        )
        yield Caveat(code="gpu_throttled", severity=Severity.WARNING, text=text)


def _clocks(gpu: str, samples: Iterable[GpuSample]) -> Iterable[Caveat]:
    clocks = [sample.sm_hz for sample in samples if sample.sm_hz is not None]
    if clocks and max(clocks) - min(clocks) > CLOCK_SPREAD * max(clocks):
        text = (
            f"the SM clock of GPU {gpu} moved between {min(clocks) / 1e6:.0f} and "
            f"{max(clocks) / 1e6:.0f} MHz: lock it (nvidia-smi -lgc) for figures that repeat"
        )
        yield Caveat(code="gpu_clocks_vary", severity=Severity.NOTE, text=text)
