"""How fast the client itself can be: the generator against something that takes no time.

A run whose chunk rate comes near ``chunks_per_s``, or whose latencies are near
``added_latency``, measures the client and not the server.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from specbench.backends.base import Backend, BackendFacts, Event, Finished
from specbench.config import LoadConfig, SpecConfig
from specbench.errors import RunError
from specbench.load.generator import LoadResult, run_load
from specbench.load.lag import ClientLag
from specbench.request import Request, SamplingParams
from specbench.trace import Chunk, Evidence, Finish, Usage

_ALONE = 50  # requests sent one at a time, to see the latency that the client adds


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestResult:
    """The client's own ceiling.

    ``path`` says what was driven: ``memory`` (no network) or ``loopback``. ``chunks_per_s`` is
    over all connections with ``concurrency`` requests in flight, and ``cpu_s_per_1000_requests``
    the processor time of this process for it, scaled to 1000 requests of ``tokens`` chunks.
    ``added_latency_*_ns`` is from send to first chunk with one request in flight,
    ``loaded_latency_*_ns`` the same with ``concurrency``: where overload shows first.
    """

    path: str
    requests: int
    tokens: int
    concurrency: int
    chunks_per_s: float
    cpu_s_per_1000_requests: float
    added_latency_p50_ns: int
    added_latency_p99_ns: int
    loaded_latency_p50_ns: int
    loaded_latency_p99_ns: int
    client_lag: ClientLag


async def self_test(
    connect: Callable[[str], Backend] | None = None,
    *,
    requests: int = 200,
    tokens: int = 128,
    concurrency: int = 64,
) -> SelfTestResult:
    """Drive a backend that answers at once, and report what the client reached.

    Args:
        connect: makes the HTTP backend for an address; it is then driven against a prepared
            server in another process. None drives a backend in memory, which leaves only the
            generator.
        requests: how many requests with ``concurrency`` in flight.
        tokens: chunks of one token per request.
        concurrency: requests in flight.

    Raises:
        RunError: the self-test itself failed, for instance because its server did not start.
    """
    if connect is None:
        return await _drive(_ZeroBackend(tokens), "memory", requests, tokens, concurrency)
    async with _zero_server(tokens) as url:
        return await _drive(connect(url), "loopback", requests, tokens, concurrency)


async def _drive(
    backend: Backend, path: str, requests: int, tokens: int, concurrency: int
) -> SelfTestResult:
    await backend.open()
    try:
        alone = await _load(backend, _ALONE, tokens, 1)
        cpu_ns = time.process_time_ns()
        together = await _load(backend, requests, tokens, concurrency)
        cpu_ns = time.process_time_ns() - cpu_ns
    finally:
        await backend.close()
    added, loaded = (
        sorted(t.chunks[0].at_ns - t.sent_ns for t in seen.traces) for seen in (alone, together)
    )
    chunks = sum(len(t.chunks) for t in together.traces)
    return SelfTestResult(
        path=path,
        requests=requests,
        tokens=tokens,
        concurrency=concurrency,
        chunks_per_s=chunks / (together.wall_ns / 1e9),
        cpu_s_per_1000_requests=cpu_ns / 1e9 / requests * 1000,
        added_latency_p50_ns=added[len(added) // 2],
        added_latency_p99_ns=added[round(0.99 * (len(added) - 1))],
        loaded_latency_p50_ns=loaded[len(loaded) // 2],
        loaded_latency_p99_ns=loaded[round(0.99 * (len(loaded) - 1))],
        client_lag=together.client_lag,
    )


async def _load(backend: Backend, count: int, tokens: int, concurrency: int) -> LoadResult:
    sampling = SamplingParams(max_tokens=tokens)
    asked = [Request(request_id=f"r{i}", prompt="x", sampling=sampling) for i in range(count)]
    load = LoadConfig(concurrency=concurrency, warmup_requests=concurrency, timeout_s=60.0)
    result = await run_load(backend, asked, load)
    for trace in result.traces:
        if len(trace.chunks) != tokens:
            raise RunError(
                f"The self-test got {len(trace.chunks)} chunks of {tokens}. {trace.error}"
            )
    return result


class _ZeroBackend:
    """Yields prepared chunks; every chunk takes one turn of the event loop, as a read would."""

    evidence = Evidence.CHUNKS

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    async def open(self) -> BackendFacts:
        return BackendFacts(backend="zero", target="", draft="")

    async def configure(self, spec: SpecConfig, batch_size: int) -> None:
        pass

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        for _ in range(self._tokens):
            await asyncio.sleep(0)
            yield Chunk(at_ns=time.perf_counter_ns(), tokens=1, text=" word")
        yield Finished(finish=Finish.LENGTH, usage=Usage(completion_tokens=self._tokens))

    async def close(self) -> None:
        pass


@asynccontextmanager
async def _zero_server(tokens: int) -> AsyncIterator[str]:
    """The prepared server in a process of its own, so that it shares no thread with the client."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "specbench.load.zero_server",
        str(tokens),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None  # both are pipes, as asked
    assert process.stdout is not None
    try:
        port = (await process.stdout.readline()).strip()
        if not port:
            raise RunError("The self-test's server did not start.", todo="See its error above.")
        yield f"http://127.0.0.1:{port.decode()}"
    finally:
        process.stdin.close()
        await process.wait()


def verdict(result: SelfTestResult) -> tuple[str, ...]:
    """What the self-test says, line by line."""
    lag = result.client_lag.p99_ns
    late = "not seen" if lag is None else f"{lag / 1e6:.1f} ms"
    alone, loaded = (
        tuple(f"{ns / 1e6:.2f} ms" for ns in pair)
        for pair in (
            (result.added_latency_p50_ns, result.added_latency_p99_ns),
            (result.loaded_latency_p50_ns, result.loaded_latency_p99_ns),
        )
    )
    alone_in_memory = result.path == "memory"
    driven = "without a network" if alone_in_memory else "over HTTP on this machine"
    return (
        f"The client took {result.chunks_per_s:,.0f} chunks/s with {result.concurrency} requests "
        f"in flight, {driven} ({result.requests} requests of {result.tokens} chunks, pieces of "
        "streamed text).",
        f"Its own part of time to first token: p50 {alone[0]}, p99 {alone[1]} with one request in "
        f"flight; p50 {loaded[0]}, p99 {loaded[1]} with {result.concurrency}.",
        f"Its event loop was late by {late} (p99); processor time "
        f"{result.cpu_s_per_1000_requests:.2f} s per 1000 requests.",
        f"Trust a run up to half of that, {result.chunks_per_s / 2:,.0f} chunks/s. A client that "
        "is asked for more shows in time to first token, while time per token still looks right.",
    )
