from __future__ import annotations

import asyncio

import pytest

from specbench.backends.base import BackendFacts
from specbench.backends.remote import RemoteBackend
from specbench.config import SpecConfig
from specbench.errors import BackendError, ConfigError
from tests.scripted_http import Reply, Scripted, as_json, scripted

OURS = {
    "version": "0.1.0",
    "target": "t",
    "draft": "d",
    "spec": {"num_steps": 3, "topk": 1, "num_draft_tokens": 4},
    "batch_size": 4,
    "max_len": 100,
    "device": {"attention": "sdpa"},
    "inputs": {"target": "sha256:1"},
}


def configured(answer: Reply, spec: SpecConfig) -> tuple[BackendFacts, RemoteBackend, Scripted]:
    async def body() -> tuple[BackendFacts, RemoteBackend, Scripted]:
        routes = {"/server_info": as_json({"specbench": OURS}), "/specbench/configure": answer}
        async with scripted(routes) as server:
            remote = RemoteBackend(server.url, api_key="k3y")
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
    assert server.asked[-1] == ("/specbench/configure", asked)
    assert remote.claims.spec == SpecConfig.chain(5)
    assert remote.notes == ()
    assert (facts.target, facts.draft, facts.max_len) == ("t", "d", 100)
    assert facts.device["server"] == "specbench 0.1.0"
    assert facts.device["attention"] == "sdpa"
    assert facts.inputs == {"target": "sha256:1"}
    assert "k3y" not in repr(facts)


def test_a_point_that_it_cannot_run_is_the_callers_mistake() -> None:
    refused = as_json({"error": {"message": "no such point"}}, 400)
    with pytest.raises(ConfigError, match="no such point"):
        configured(refused, SpecConfig.chain(5))


def test_a_busy_server_is_an_error_of_the_run() -> None:
    with pytest.raises(BackendError, match="in flight"):
        configured(as_json({"error": {"message": "2 in flight"}}, 409), SpecConfig.chain(5))
