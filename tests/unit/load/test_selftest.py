from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from specbench.backends.base import Backend
from specbench.backends.openai import OpenAIBackend
from specbench.backends.sglang import SGLangBackend
from specbench.errors import RunError
from specbench.load.selftest import self_test
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
