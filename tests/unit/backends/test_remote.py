from __future__ import annotations

import asyncio
from typing import Any

import pytest

from specbench.backends.base import BackendFacts, Event, Finished, close_telling
from specbench.backends.openai import OpenAIBackend
from specbench.backends.remote import RemoteBackend
from specbench.backends.sglang import SGLangBackend
from specbench.config import SpecConfig
from specbench.errors import BackendError, ConfigError
from specbench.request import Request
from tests.scripted_http import Reply, Scripted, as_events, as_json, scripted

FOUND = {"num_steps": 3, "topk": 1, "num_draft_tokens": 4}
OURS = {
    "version": "0.1.0",
    "target": "t",
    "draft": "d",
    "spec": FOUND,
    "batch_size": 4,
    "max_len": 100,
    "device": {"attention": "sdpa"},
    "inputs": {"target": "sha256:1"},
}


def configured(answer: Reply, spec: SpecConfig) -> tuple[BackendFacts, RemoteBackend, Scripted]:
    async def body() -> tuple[BackendFacts, RemoteBackend, Scripted]:
        routes = {"/server_info": as_json({"specbench": OURS}), "/specbench/configure": answer}
        async with scripted(routes) as server:
            remote = SGLangBackend(server.url, api_key="k3y")
            remote.busy_wait_s = 0.1
            facts = await remote.open()
            try:
                await remote.configure(spec, 2)
            finally:
                await remote.close()
            return facts, remote, server

    return asyncio.run(body())


def test_our_own_server_is_switched() -> None:
    facts, remote, server = configured(as_json({}), SpecConfig.chain(5))
    asked = {"num_steps": 5, "topk": 1, "num_draft_tokens": 6, "batch_size": 2}
    found = {**FOUND, "batch_size": 4}
    switches = [body for path, body in server.asked if path == "/specbench/configure"]
    assert switches == [asked, found]  # and put back by close
    assert remote.claims.spec == SpecConfig.chain(3)
    assert remote.left == ()
    assert remote.notes == ()
    assert (facts.target, facts.draft, facts.max_len) == ("t", "d", 100)
    assert facts.device["server"] == "specbench 0.1.0"
    assert facts.device["attention"] == "sdpa"
    assert facts.inputs == {"target": "sha256:1"}
    assert "k3y" not in repr(facts)


def test_what_the_server_runs_is_known_once_it_is_switched() -> None:
    async def body() -> None:
        routes = {"/server_info": as_json({"specbench": OURS}), "/specbench/configure": as_json({})}
        async with scripted(routes) as server:
            remote = SGLangBackend(server.url)
            await remote.open()
            await remote.configure(SpecConfig.chain(5), 2)
            assert (remote.claims.spec, remote.claims.batch_size) == (SpecConfig.chain(5), 2)
            await remote.close()

    asyncio.run(body())


def test_a_server_that_cannot_be_put_back_is_told() -> None:
    """It answers the first switch, and is gone or refuses when the run ends."""

    async def body(end: Reply | None) -> list[str]:
        routes = {"/server_info": as_json({"specbench": OURS}), "/specbench/configure": as_json({})}
        told: list[str] = []
        async with scripted(routes) as server:
            remote = SGLangBackend(server.url)
            remote.busy_wait_s = 0.1
            await remote.open()
            await remote.configure(SpecConfig.chain(5), 2)
            if end is not None:
                routes["/specbench/configure"] = end
                await close_telling(remote, told.append)
                return told
        await close_telling(remote, told.append)
        return told

    for end in (None, as_json({}, 500), as_json({"error": {"message": "2 in flight"}}, 409)):
        (note,) = asyncio.run(body(end))
        assert "may not run k3 with batch size 4 again, as before this run" in note


def test_a_run_that_is_interrupted_puts_the_server_back() -> None:
    async def body() -> list[Any]:
        routes = {"/server_info": as_json({"specbench": OURS}), "/specbench/configure": as_json({})}
        async with scripted(routes) as server:
            remote = SGLangBackend(server.url)

            async def run() -> None:
                try:
                    await remote.open()
                    routes["/specbench/configure"] = Reply(hang=True)
                    await remote.configure(SpecConfig.chain(5), 2)
                finally:
                    routes["/specbench/configure"] = as_json({})
                    await remote.close()

            task = asyncio.create_task(run())
            for _ in range(5000):
                if server.asked and server.asked[-1][0] == "/specbench/configure":
                    break
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            return [body for path, body in server.asked if path == "/specbench/configure"]

    assert asyncio.run(body())[1:] == [{**FOUND, "batch_size": 4}]


def test_a_server_that_refused_to_be_switched_is_left_alone() -> None:
    async def body() -> Scripted:
        refused = as_json({"error": {"message": "no such point"}}, 400)
        routes = {"/server_info": as_json({"specbench": OURS}), "/specbench/configure": refused}
        async with scripted(routes) as server:
            remote = SGLangBackend(server.url)
            await remote.open()
            with pytest.raises(ConfigError):
                await remote.configure(SpecConfig.chain(5), 2)
            await remote.close()
            assert remote.left == ()
            return server

    assert [path for path, _ in asyncio.run(body()).asked].count("/specbench/configure") == 1


def test_a_point_that_it_cannot_run_is_the_callers_mistake() -> None:
    refused = as_json({"error": {"message": "no such point"}}, 400)
    with pytest.raises(ConfigError, match="no such point"):
        configured(refused, SpecConfig.chain(5))


def test_a_busy_server_is_an_error_of_the_run() -> None:
    with pytest.raises(BackendError, match="in flight"):
        configured(as_json({"error": {"message": "2 in flight"}}, 409), SpecConfig.chain(5))


OPENAI_END = {
    "choices": [{"index": 0, "text": "b", "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    },
}
SGLANG_END = {
    "text": "ab",
    "meta_info": {
        "finish_reason": {"type": "stop"},
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "cached_tokens": 8,
    },
}


@pytest.mark.parametrize(
    ("kind", "path", "end"),
    [
        (OpenAIBackend, "/v1/completions", OPENAI_END),
        (SGLangBackend, "/generate", SGLANG_END),
    ],
)
def test_hits_of_a_prefix_cache_reach_the_request(
    kind: type[RemoteBackend], path: str, end: dict[str, Any]
) -> None:
    async def body() -> list[Event]:
        models = as_json({"data": [{"id": "m"}]})
        async with scripted({"/v1/models": models, path: as_events(end)}) as server:
            remote = kind(server.url)
            await remote.open()
            try:
                return [event async for event in remote.stream(Request(request_id="r", prompt="p"))]
            finally:
                await remote.close()

    *_, last = asyncio.run(body())
    assert isinstance(last, Finished)
    assert (last.usage.prompt_tokens, last.usage.cached_tokens) == (9, 8)
