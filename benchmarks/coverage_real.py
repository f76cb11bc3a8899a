"""A/A coverage on real runs of the shipped pair: the part of ``benchmarks.coverage`` that is timed.

Each run measures plain decoding twice and one chain twice, in the interleaved blocks of a sweep,
and asks for the interval of second ÷ first; the truth is 1. Machine noise is what it is: slow
seconds that hit one arm of one block are in it, which simulations of requests alone leave out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from specbench import demo
from specbench.backends.base import Backend
from specbench.config import EngineConfig, LoadConfig, SpecConfig
from specbench.estimate import Estimate
from specbench.grid import Point
from specbench.metrics.arms import Arm, gather
from specbench.metrics.speedup import decode_speedup
from specbench.metrics.stats import wilson
from specbench.run import inprocess_backend, run_block
from specbench.sweep import plan_jobs
from specbench.sweep_spec import SweepSpec
from specbench.trace import ArmRun
from specbench.workload import load_workload

CHAIN = 3
PLAIN, AGAIN = "base", "base-again"
SPEC, SPEC_AGAIN = "k3", "k3-again"
PAIRS = ((PLAIN, AGAIN), (SPEC, SPEC_AGAIN))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """Two equal arms of one run: ``ratio`` is second over first, ``rows`` its requests."""

    name: str
    requests: int
    ratio: Estimate
    rows: list[dict[str, int | str]]

    @property
    def covers(self) -> bool:
        """True when the interval holds 1."""
        return not self.ratio.excludes(1.0)


async def one_run(backend: Backend, requests: int, per_block: int, max_tokens: int) -> list[Twice]:
    """Four arms in turn on ``requests`` prompts, as a sweep would run them."""
    blocks = max(1, requests // per_block)
    spec = SweepSpec(requests=requests, blocks=blocks, max_tokens=max_tokens)
    points = [
        Point(spec=SpecConfig.baseline()),
        Point(spec=SpecConfig.baseline(), again=True),
        Point(spec=SpecConfig.chain(CHAIN)),
        Point(spec=SpecConfig.chain(CHAIN), again=True),
    ]
    found: list[ArmRun] = []
    for job in plan_jobs(spec, points, [load_workload("default")]):
        arm, _ = await run_block(
            backend,
            spec=job.point.spec,
            workload=job.workload.name,
            temperature=job.temperature,
            batch_size=job.batch_size,
            block=job.block,
            requests=job.requests,
            load=LoadConfig(),
            warmup=0,
        )
        found.append(dataclasses.replace(arm, point_id=job.point.point_id))
    arms = {arm.key.point_id: arm for arm in gather(found).values()}
    return [_twice(arms[first], arms[second], requests) for first, second in PAIRS]


def _twice(first: Arm, second: Arm, requests: int) -> Twice:
    ratio = decode_speedup(first.requests, second.requests)
    if ratio is None or ratio.low is None:
        raise ValueError("a run needs at least 12 timed requests")
    rows: list[dict[str, int | str]] = [
        {
            "arm": arm.key.point_id,
            "prompt": request.conversation[1],
            "block": request.block,
            "sent_ns": request.trace.sent_ns,
            "decode_ns": request.decode_ns or 0,
            "tokens": request.decode_tokens or 0,
        }
        for arm in (first, second)
        for request in arm.requests
    ]
    return Twice(name=first.key.point_id, requests=requests, ratio=ratio, rows=rows)


@asynccontextmanager
async def shipped() -> AsyncIterator[Backend]:
    """The engine on the shipped pair, warmed up."""
    backend = inprocess_backend(demo.TARGET, demo.DRAFT, EngineConfig(max_batch_size=1))
    await backend.open()
    try:
        await one_run(backend, 12, 12, 16)
        yield backend
    finally:
        await backend.close()


async def measure(
    runs: int, sizes: Sequence[int], *, per_block: int, max_tokens: int, save: Path | None
) -> list[Twice]:
    """``runs`` runs of every size; each is appended to ``save`` as a line of JSON."""
    found = []
    async with shipped() as backend:
        for _ in range(runs):
            for size in sizes:
                made = await one_run(backend, size, per_block, max_tokens)
                found += made
                if save is not None:
                    with save.open("a", encoding="utf-8") as file:
                        file.writelines(
                            json.dumps(dataclasses.asdict(one), default=int) + "\n" for one in made
                        )
    return found


def table(found: Sequence[Twice], sizes: Sequence[int]) -> list[str]:
    """Coverage with its Wilson interval, by size and arm, and the width of the intervals."""
    lines = []
    for size in sizes:
        for name, shown in ((PLAIN, "plain ÷ plain"), (SPEC, f"chain of {CHAIN} twice")):
            of = [one for one in found if one.requests == size and one.name == name]
            if of:
                lines.append(f"{size:4d} requests, {shown:20} {_share(of)}")
    lines.append(f"{'all':>4} {'':31} {_share(found)}")
    return lines


def _share(found: Sequence[Twice]) -> str:
    hits = sum(one.covers for one in found)
    share = wilson(hits, len(found))
    between = ""
    if share is not None and share.low is not None and share.high is not None:
        between = f" [{share.low:.1%}, {share.high:.1%}]"
    widths = sorted((one.ratio.high or 0) / (one.ratio.low or 1) for one in found)
    return (
        f"{hits}/{len(found)} hold 1: {hits / len(found):.1%}{between}, "
        f"median width x{widths[len(widths) // 2]:.3f}"
    )


def real(
    runs: int, sizes: Sequence[int], max_tokens: int, per_block: int, save: Path | None
) -> None:
    """Measure and print the table."""
    found = asyncio.run(measure(runs, sizes, per_block=per_block, max_tokens=max_tokens, save=save))
    print(f"{runs} real runs of each size, {per_block} prompts a block, nominal 95 %")
    print("\n".join(table(found, sizes)))
