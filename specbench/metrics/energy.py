"""Energy and use of GPUs by the arms of a run: samples joined to blocks by time.

A window that a GPU's samples do not enclose has no energy: a figure is never taken from a part
of the GPUs or of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from specbench.gpu_samples import GpuSample
from specbench.metrics.arms import Arm, ArmKey
from specbench.metrics.figures import ALL
from specbench.metrics.gpu_track import Samples, Window, tracks
from specbench.metrics.sums import RequestSums

NS_PER_S = 1e9
LEAST_SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """GPUs in the measured windows of an arm or of one category; None where not known.

    ``util_pct`` is the mean over samples and GPUs, ``power_w`` the mean of all GPUs together.
    Tokens are output tokens as in throughput, those of prefill included; drafts are those that
    were accepted, before trimming.
    """

    util_pct: float | None
    power_w: float | None
    joules: float | None
    j_per_token: float | None
    j_per_accepted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUse:
    """One block's share in an arm or category. ``samples`` counts those of the GPU with fewest."""

    seconds: float
    joules: float | None
    utilisation: tuple[float, ...]
    samples: int
    requests: tuple[RequestSums, ...]


def gpu_use(
    arm: Arm, samples: Samples, category: str | None = None, *, open_loop: bool = False
) -> GpuUse | None:
    """What ``arm`` took of the GPUs; None when nothing was sampled.

    A category has figures of its own only where its requests ran one at a time (semantics.md 14),
    over the time from send to last delivery of each, and where that time holds enough samples.

    Args:
        arm: the arm.
        samples: of its blocks.
        category: keep only this category.
        open_loop: requests came on a schedule, and wait for each other even at batch 1.
    """
    if arm.requests.of_category(category) is arm.requests:
        category = None
    if category is not None and (open_loop or arm.key.cell.batch_size != 1):
        return None
    blocks = block_uses(arm, samples, category)
    if category is not None and sum(block.samples for block in blocks) < LEAST_SAMPLES:
        return None
    if not blocks:
        return None
    told = [block for block in blocks if block.joules is not None]
    joules = sum(block.joules or 0.0 for block in told) if told else None
    requests = [request for block in told for request in block.requests]
    shares = [share for block in blocks for share in block.utilisation]
    return GpuUse(
        util_pct=100 * sum(shares) / len(shares) if shares else None,
        power_w=_ratio(joules, sum(block.seconds for block in told)),
        joules=joules,
        j_per_token=_ratio(joules, _total([request.completion for request in requests])),
        j_per_accepted=_ratio(joules, _total([request.accepted for request in requests])),
    )


def gpu_uses(
    arms: Iterable[Arm], samples: Samples, *, open_loop: bool
) -> dict[tuple[ArmKey, str], GpuUse]:
    """What every arm, and each of its categories, took of the GPUs, where it is known."""
    return {
        (arm.key, category or ALL): use
        for arm in arms
        for category in (None, *filter(None, arm.requests.categories))
        if (use := gpu_use(arm, samples, category, open_loop=open_loop))
    }


def block_uses(arm: Arm, samples: Samples, category: str | None = None) -> list[BlockUse]:
    """The blocks of ``arm`` in which something was sampled.

    A GPU of the run's first block that a later one lacks was lost: the others' energy is not all.
    """
    found = []
    first: Sequence[GpuSample] = next(iter(samples.values()), ())
    everyone = {sample.gpu for sample in first if not sample.is_instance}
    for run in arm.runs:
        its = samples.get((arm.key, run.block))
        if not its:
            continue
        requests = tuple(
            r for r in arm.requests if r.block == run.block and category in (None, r.category)
        )
        if category is None:
            windows = [(run.started_ns, run.started_ns + run.wall_ns)]
        else:
            windows = [(r.trace.sent_ns, r.last_ns) for r in requests if r.last_ns is not None]
        if windows:
            found.append(_block_use(its, windows, requests, everyone))
    return found


def _block_use(
    samples: Sequence[GpuSample],
    windows: Sequence[Window],
    requests: tuple[RequestSums, ...],
    everyone: AbstractSet[str],
) -> BlockUse:
    seen = {gpu: track for gpu, track in tracks(samples).items() if not track.is_instance}
    whole = list(seen.values())
    inside = [[s for window in windows for s in track.inside(window)] for track in whole]
    energies = [track.energy_j(window) for track in whole for window in windows]
    known = [joules for joules in energies if joules is not None]
    told = known and len(known) == len(energies) and everyone <= set(seen)
    return BlockUse(
        seconds=sum(end - start for start, end in windows) / NS_PER_S,
        joules=sum(known) if told else None,
        utilisation=tuple(
            s.utilisation for its in inside for s in its if s.utilisation is not None
        ),
        samples=min((len(its) for its in inside), default=0),
        requests=requests,
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None
