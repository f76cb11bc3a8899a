from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from specbench.backends.base import Backend
from specbench.backends.openai import OpenAIBackend
from specbench.backends.sglang import SGLangBackend
from specbench.errors import RunError
from specbench.load.selftest import self_test, verdict
from tests.fakes import FakeBackend


@pytest.mark.parametrize(
    ("connect", "path"),
    [(None, "memory"), (OpenAIBackend, "loopback"), (SGLangBackend, "loopback")],
)
def test_the_ceiling_is_measured(connect: Callable[[str], Backend] | None, path: str) -> None:
    result = asyncio.run(self_test(connect, requests=20, tokens=8, concurrency=4))
    assert (result.path, result.requests, result.tokens) == (path, 20, 8)
    assert result.chunks_per_s > 0
    assert result.cpu_s_per_1000_requests > 0
    assert 0 < result.added_latency_p50_ns <= result.added_latency_p99_ns


def test_a_client_that_loses_chunks_fails_the_test() -> None:
    with pytest.raises(RunError, match="chunks of 8"):
        asyncio.run(self_test(lambda _: FakeBackend(), requests=2, tokens=8, concurrency=1))


def test_the_verdict_names_the_ceiling_and_where_overload_shows() -> None:
    result = asyncio.run(self_test(None, requests=20, tokens=8, concurrency=4))
    assert result.loaded_latency_p50_ns <= result.loaded_latency_p99_ns
    lines = verdict(result)
    assert f"{result.chunks_per_s:,.0f} chunks/s with 4 requests in flight" in lines[0]
    assert f"{result.chunks_per_s / 2:,.0f} chunks/s" in lines[-1]
    assert "time to first token" in lines[-1]
