"""What the load generator itself costs: python -m benchmarks.load [--requests N] [--loop uvloop].

Drives a zero-latency backend in memory and a prepared server on loopback (a process of its own)
through both HTTP backends, and prints CPU-seconds per 1000 requests × 128 tokens, the chunk rate
that was reached, and the latency that the client adds to a request sent alone. Run it on a quiet
machine; the server needs a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable

import uvloop

from specbench.backends.base import Backend
from specbench.backends.openai import OpenAIBackend
from specbench.backends.sglang import SGLangBackend
from specbench.load.selftest import self_test

CLIENTS: dict[str, Callable[[str], Backend] | None] = {
    "in memory": None,
    "openai": OpenAIBackend,
    "sglang": SGLangBackend,
}


async def measure(requests: int, concurrency: int) -> None:
    """Run every client once and print one line each."""
    print(f"{'client':<10} {'CPU-s/1000':>10} {'chunks/s':>9} {'added ms p50':>12} {'p99':>6}")
    for name, connect in CLIENTS.items():
        result = await self_test(connect, requests=requests, concurrency=concurrency)
        print(
            f"{name:<10} {result.cpu_s_per_1000_requests:>10.2f} {result.chunks_per_s:>9.0f} "
            f"{result.added_latency_p50_ns / 1e6:>12.3f} {result.added_latency_p99_ns / 1e6:>6.2f}"
        )


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    given = parser.parse_args()
    factory = uvloop.new_event_loop if given.loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(measure(given.requests, given.concurrency))


if __name__ == "__main__":
    main()
