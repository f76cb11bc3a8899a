"""Which answers are logged as refusals, and how loud."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable

import aiohttp

from specbench.server.app import RunningServer
from specbench.server.logs import JsonLog
from specbench.server.service import SERVICE
from tests.fakes import FakeBackend
from tests.unit.server.test_app import with_server


def logged(use: Callable[[RunningServer, aiohttp.ClientSession], Awaitable[None]]) -> list[object]:
    out = io.StringIO()

    async def body(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        await use(server, client)

    with_server(body, log=JsonLog(out), api_key="secret")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return [(line["level"], line["method"], line["path"], line["status"]) for line in lines]


def test_a_wrong_key_and_an_unknown_route_are_warnings() -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession) -> None:
        async with client.get(server.url + "/v1/models"):
            pass
        async with client.get(
            server.url + "/no?prompt=x", headers={"Authorization": "Bearer secret"}
        ):
            pass

    assert logged(use) == [
        ("warning", "GET", "/v1/models", 401),
        ("warning", "GET", "/no", 404),
    ]


def test_good_answers_and_probes_are_not_refusals() -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession) -> None:
        server.runner.app[SERVICE].draining = True
        for path in ("/healthz", "/readyz", "/"):
            async with client.get(server.url + path):
                pass

    assert logged(use) == []
