from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from specbench import __version__
from specbench.config import SpecConfig
from specbench.errors import EngineError
from specbench.server.app import RunningServer, build_app, serve
from tests.fakes import FakeBackend
from tests.unit.server.test_app import answer, with_server


def ask(
    method: str, path: str, body: Any = None, fake: FakeBackend | None = None
) -> tuple[int, Any]:
    async def call() -> tuple[int, Any]:
        backend = fake or FakeBackend()
        facts = await backend.open()
        app = build_app(backend, facts, spec=backend.spec, batch_size=4)
        server = await serve(app, drain_s=0.2)
        try:
            async with (
                aiohttp.ClientSession() as client,
                client.request(method, server.url + path, json=body) as answer,
            ):
                return answer.status, await answer.json()
        finally:
            await server.stop()

    return asyncio.run(call())


@pytest.mark.parametrize("path", ["/health", "/healthz"])
def test_health(path: str) -> None:
    assert ask("GET", path) == (200, {"status": "ok", "in_flight": 0})


def test_ready() -> None:
    assert ask("GET", "/readyz") == (200, {"ready": True})


def test_models() -> None:
    status, data = ask("GET", "/v1/models")
    assert status == 200
    assert [(m["id"], m["max_model_len"]) for m in data["data"]] == [("fake-target", 1024)]


def test_model_info() -> None:
    assert ask("GET", "/get_model_info")[1]["model_path"] == "fake-target"


def test_server_info_speaks_sglangs_names_and_ours() -> None:
    _, info = ask("GET", "/server_info")
    assert info["speculative_algorithm"] == "EAGLE3"
    assert info["speculative_num_steps"] == 3
    assert info["speculative_eagle_topk"] == 1
    assert info["speculative_num_draft_tokens"] == 4
    assert info["max_running_requests"] == 4
    ours = info["specbench"]
    assert ours["version"] == __version__
    assert ours["spec"] == {"num_steps": 3, "topk": 1, "num_draft_tokens": 4}
    assert ours["device"] == {"device": "none"}
    assert ours["defaults"]["temperature"] == 0.0


def test_server_info_of_the_baseline() -> None:
    _, info = ask("GET", "/server_info", fake=FakeBackend(spec=SpecConfig.baseline()))
    assert info["speculative_algorithm"] is None
    assert info["speculative_num_steps"] is None


POINT = {"num_steps": 2, "topk": 1, "num_draft_tokens": 3, "batch_size": 2}


def test_configure() -> None:
    fake = FakeBackend()
    status, data = ask("POST", "/specbench/configure", POINT, fake)
    assert status == 200
    assert data["batch_size"] == 2
    assert fake.points == [(SpecConfig.chain(2), 2)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_draft_tokens": 16}, "drafts a chain of 2"),
        ({"num_step": 3}, "did you mean num_steps"),
        ({"topk": None}, "topk missing"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 65}, "At most 64"),
        ({"num_steps": "2"}, "an integer"),
    ],
)
def test_configure_refuses(change: dict[str, Any], said: str) -> None:
    fake = FakeBackend()
    status, data = ask("POST", "/specbench/configure", {**POINT, **change}, fake)
    assert status == 400
    assert said in data["error"]["message"]
    assert fake.points == []


def test_health_of_a_server_whose_engine_has_stopped() -> None:
    fake = FakeBackend(fails={"p": EngineError("the engine stopped: boom.")})

    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        assert (await answer(client.get(server.url + "/healthz")))[0] == 200
        body = {"prompt": "p", "max_tokens": 3}
        assert (await answer(client.post(server.url + "/v1/completions", json=body)))[0] == 500
        got = await answer(client.get(server.url + "/healthz"))
        assert got == (503, {"status": "engine stopped", "in_flight": 0})
        assert await answer(client.get(server.url + "/readyz")) == (503, {"ready": False})

    with_server(use, fake)
