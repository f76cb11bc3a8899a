"""What recording for Prometheus costs: python -m benchmarks.recording [--rounds N].

Three figures. (1) Nanoseconds to record one verify step, and milliseconds to write a page of 40
points. (2) Output tokens per second of a pair with 64 requests in flight, blocks with
recording and a scraper every second against blocks with neither, in turn. (3) The noise floor of
(2): blocks with neither against each other, in the same turns. Run it on a quiet machine; the
scraper needs a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from specbench import demo
from specbench.backends.base import Backend
from specbench.collectors.exposition import Metrics, MetricsServer
from specbench.collectors.live import Recorder
from specbench.collectors.points import Cell
from specbench.config import EngineConfig, LoadConfig, SpecConfig
from specbench.request import Request, SamplingParams
from specbench.run import engine_state, inprocess_backend, run_block
from specbench.trace import Chunk, Evidence, Finish, RequestTrace, StepTrace, Usage
from specbench.workload import load_workload

RUN = {"run_id": "r", "version": "0", "backend": "inprocess", "target": "t", "draft": "d"}
SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(1)
"""
POINTS = 40
REQUESTS, STEPS = 500, 64


def record_ns(batch: int) -> float:
    """Nanoseconds to record one step, with its delivery and its share of the request's end.

    Requests of 64 steps at K = 5, in batches of ``batch``; the median over requests.
    """
    record = Recorder(RUN).begin(Cell(spec=SpecConfig.chain(5), batch_size=batch))
    times = []
    for index in range(REQUESTS):
        trace = _request(index, batch)
        start = time.perf_counter_ns()
        for step, chunk in zip(trace.steps, trace.chunks, strict=True):
            record.event(trace.request, step)
            record.event(trace.request, chunk)
        record.trace(trace)
        times.append((time.perf_counter_ns() - start) / STEPS)
    return statistics.median(times)


def _request(index: int, batch: int) -> RequestTrace:
    """One of ``batch`` requests that share their forwards."""
    accepted = [i % 6 for i in range(STEPS)]
    tokens = sum(accepted) + STEPS
    return RequestTrace(
        request=Request(request_id=f"r{index}", prompt="p"),
        due_ns=0,
        sent_ns=0,
        end_ns=STEPS * 7_000_000,
        chunks=tuple(
            Chunk(at_ns=i * 7_000_000, tokens=a + 1, text="x") for i, a in enumerate(accepted)
        ),
        steps=tuple(
            StepTrace(
                batch_step=index // batch * STEPS + i,
                batch=batch,
                committed=100,
                drafted=5,
                depth=5,
                accepted=a,
                emitted=a + 1,
                draft_ns=2_000_000,
                extend_ns=500_000,
                verify_ns=4_000_000,
                other_ns=300_000,
            )
            for i, a in enumerate(accepted)
        ),
        finish=Finish.LENGTH,
        evidence=Evidence.STEPS,
        usage=Usage(prompt_tokens=100, completion_tokens=tokens),
        output_ids=tuple(range(tokens)),
    )


def page_ms() -> tuple[float, float, int]:
    """Milliseconds to write a whole page, and one where an arm has changed; its size in bytes."""
    recorder = Recorder(RUN)
    cells = [Cell(spec=SpecConfig.chain(5), batch_size=i + 1) for i in range(POINTS)]
    recorder.register(cells)
    metrics = Metrics(recorder)
    step = StepTrace(batch_step=0, batch=1, committed=1, drafted=5, depth=5, accepted=2, emitted=3)
    times = []
    for _ in range(21):
        recorder.begin(cells[0]).step(step)
        start = time.perf_counter_ns()
        page, _ = metrics.page()
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times[0], statistics.median(times[1:]), len(page)


@contextlib.asynccontextmanager
async def scraped(metrics: Metrics) -> AsyncIterator[None]:
    """A process of its own reads the page every second."""
    server = await MetricsServer.start(metrics)
    scraper = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRAPER, server.url)
    try:
        yield
    finally:
        scraper.terminate()
        await scraper.wait()
        await server.stop()


async def tokens_per_s(
    backend: Backend, requests: list[Request], size: int, recorder: Recorder | None
) -> float:
    """Output tokens per second of one block."""
    spec = SpecConfig.chain(3)
    cell = Cell(spec=spec, batch_size=size)
    arm, _ = await run_block(
        backend,
        spec=spec,
        workload="default",
        temperature=0.0,
        batch_size=size,
        block=0,
        requests=requests,
        load=LoadConfig(),
        warmup=0,
        watches=[] if recorder is None else [recorder.begin(cell)],
    )
    tokens = sum(trace.usage.completion_tokens or 0 for trace in arm.requests)
    return tokens / arm.wall_ns * 1e9


async def compare(pair: tuple[Path, Path], rounds: int, size: int, max_tokens: int) -> None:
    """Blocks off, on, off in turn; the two offs of a round give the noise floor."""
    backend = inprocess_backend(*pair, EngineConfig(max_batch_size=size))
    await backend.open()
    try:
        sampling = SamplingParams(max_tokens=max_tokens)
        requests = list(load_workload("default").requests(size, sampling, repeat=True))
        recorder = Recorder(RUN, state=engine_state(backend))
        await tokens_per_s(backend, requests, size, None)
        on, floor = [], []
        for _ in range(rounds):
            before = await tokens_per_s(backend, requests, size, None)
            async with scraped(Metrics(recorder)):
                during = await tokens_per_s(backend, requests, size, recorder)
            after = await tokens_per_s(backend, requests, size, None)
            on.append(during / ((before + after) / 2))
            floor.append(after / before)
            print(f"  off {before:7.0f}  on {during:7.0f}  off {after:7.0f} tok/s", flush=True)
        print(f"on ÷ off   {summary(on)}")
        print(f"off ÷ off  {summary(floor)}  (noise floor)")
    finally:
        await backend.close()


def summary(ratios: list[float]) -> str:
    """Mean and two standard errors."""
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    return f"{statistics.mean(ratios):.4f} ± {2 * error:.4f} ({len(ratios)} rounds)"


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", type=int, default=64, help="requests in flight")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--target", type=Path, default=demo.TARGET)
    parser.add_argument("--draft", type=Path, default=demo.DRAFT)
    given = parser.parse_args()
    for batch in (1, 4, 64):
        print(f"record a step at batch {batch:2}: {record_ns(batch):6.0f} ns")
    whole, changed, size = page_ms()
    print(f"page of {POINTS} points ({size / 1e3:.0f} kB): {whole:.1f} ms, then {changed:.2f} ms")
    pair = given.target, given.draft
    asyncio.run(compare(pair, given.rounds, given.size, given.max_tokens))


if __name__ == "__main__":
    main()
