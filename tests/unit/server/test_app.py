from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
import pytest

from specbench.collectors.exposition import Metrics
from specbench.collectors.live import Recorder
from specbench.errors import ConfigError
from specbench.serve_config import LimitsConfig
from specbench.server.app import RunningServer, build_app, serve
from tests.fakes import FakeBackend

T = TypeVar("T")
PROMPT = {"prompt": "p", "max_tokens": 3}


def with_server(
    use: Callable[[RunningServer, aiohttp.ClientSession, FakeBackend], Awaitable[T]],
    fake: FakeBackend | None = None,
    *,
    drain_s: float = 0.2,
    **options: Any,
) -> T:
    async def body() -> T:
        backend = fake or FakeBackend()
        facts = await backend.open()
        app = build_app(backend, facts, spec=backend.spec, batch_size=4, **options)
        server = await serve(app, drain_s=drain_s)
        try:
            async with aiohttp.ClientSession() as client:
                return await use(server, client, backend)
        finally:
            await server.stop()

    return asyncio.run(body())


async def answer(request: Any) -> tuple[int, Any]:
    async with request as got:
        return got.status, await got.json()


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/generate", 405)]
)
def test_no_such_route_in_the_shape_of_every_error(method: str, path: str, status: int) -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        got, data = await answer(client.request(method, server.url + path))
        assert got == status
        assert path in data["error"]["message"]

    with_server(use)


@pytest.mark.parametrize(
    ("raw", "content_type", "status", "said"),
    [
        (b"{oops", "application/json", 400, "no JSON"),
        (b'{"prompt": NaN}', "application/json", 400, "NaN"),
        (b"[" * 50_000, "application/json", 400, "no JSON"),
        (b'{"prompt": "\\ud800"}', "application/json", 400, "no JSON"),
        (b"\xff", "application/json", 400, "no JSON"),
        (b"[]", "application/json", 400, "no JSON object"),
        (b"{}", "text/plain", 415, "application/json"),
        (b'{"prompt": "' + b"x" * 3000 + b'"}', "application/json", 413, "2000 bytes"),
        (b'{"prompt": "' + b"x" * 10**7 + b'"}', "application/json", 413, "2000 bytes"),
    ],
)
def test_bodies_that_are_refused(raw: bytes, content_type: str, status: int, said: str) -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, fake: FakeBackend) -> None:
        headers = {"Content-Type": content_type}
        url = server.url + "/v1/completions"
        got, data = await answer(client.post(url, data=raw, headers=headers))
        assert got == status
        assert said in data["error"]["message"]
        assert fake.sent == []

    limit = 2000 if status == 413 else 2**21
    with_server(use, limits=LimitsConfig(max_body_bytes=limit))


@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 401), ("Bearer wrong", 401), ("s3cret", 401), ("Bearer s3cret", 200)],
)
def test_the_key(header: str | None, status: int) -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        headers = {"Authorization": header} if header else {}
        url = server.url + "/v1/completions"
        assert (await answer(client.post(url, json=PROMPT, headers=headers)))[0] == status
        assert (await answer(client.get(server.url + "/server_info", headers=headers)))[0] == status
        assert (await answer(client.get(server.url + "/health")))[0] == 200

    with_server(use, api_key="s3cret")


def test_a_client_that_goes_away_cancels_its_request() -> None:
    fake = FakeBackend(hangs=frozenset({"p"}))

    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        for stream in (True, False):
            body = {**PROMPT, "stream": stream}
            call = asyncio.create_task(
                answer(client.post(f"{server.url}/v1/completions", json=body))
            )
            await fake.hanging.get()
            call.cancel()
            await asyncio.wait([call])
            await asyncio.wait_for(fake.idle(), 30)

    with_server(use, fake)
    assert fake.closed_early == ["p", "p"]


def test_too_many_at_once() -> None:
    fake = FakeBackend(hangs=frozenset({"p"}))

    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        url = server.url + "/v1/completions"
        call = asyncio.create_task(answer(client.post(url, json=PROMPT)))
        await fake.hanging.get()
        assert (await answer(client.post(url, json=PROMPT)))[0] == 429
        call.cancel()
        await asyncio.wait([call])

    with_server(use, fake, limits=LimitsConfig(max_in_flight=1))


def test_stop_lets_requests_end() -> None:
    fake = FakeBackend(delay_s=0.05)

    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        url = server.url + "/v1/completions"
        call = asyncio.create_task(answer(client.post(url, json=PROMPT)))
        while not fake.in_flight:  # noqa: ASYNC110  # the counter has no event
            await asyncio.sleep(0.005)
        await server.stop()
        assert (await call)[0] == 200
        with pytest.raises(aiohttp.ClientConnectionError):
            await answer(client.post(url, json=PROMPT))

    with_server(use, fake, drain_s=30.0)
    assert fake.closed_early == []


def test_stop_cancels_what_does_not_end() -> None:
    fake = FakeBackend(hangs=frozenset({"p"}))

    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        call = asyncio.create_task(answer(client.post(f"{server.url}/v1/completions", json=PROMPT)))
        await fake.hanging.get()
        await server.stop()
        await asyncio.wait([call])

    with_server(use, fake, drain_s=0.1)
    assert fake.closed_early == ["p"]


def test_a_port_in_use_is_one_clear_error() -> None:
    async def use(server: RunningServer, _: aiohttp.ClientSession, fake: FakeBackend) -> None:
        app = build_app(fake, await fake.open(), spec=fake.spec, batch_size=1)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}") as refused:
            await serve(app, port=server.port)
        assert refused.value.exit_code == 2
        assert "--port" in str(refused.value)

    with_server(use)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 65536), ("127.0.0.1", -1)])
def test_no_port(host: str, port: int) -> None:
    async def body() -> None:
        fake = FakeBackend()
        app = build_app(fake, await fake.open(), spec=fake.spec, batch_size=1)
        with pytest.raises(ConfigError, match="TCP port"):
            await serve(app, host, port)

    asyncio.run(body())


def test_localhost_is_one_address() -> None:
    async def body() -> str:
        fake = FakeBackend()
        app = build_app(fake, await fake.open(), spec=fake.spec, batch_size=1)
        server = await serve(app, "localhost")
        await server.stop()
        return server.url

    assert asyncio.run(body()).startswith("http://127.0.0.1:")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])
def test_beyond_loopback_a_key_is_required(host: str) -> None:
    async def body() -> None:
        fake = FakeBackend()
        app = build_app(fake, await fake.open(), spec=fake.spec, batch_size=1)
        with pytest.raises(ConfigError, match="API key is required"):
            await serve(app, host)

    asyncio.run(body())


def test_with_a_key_every_address_may_be_served() -> None:
    async def body() -> None:
        fake = FakeBackend()
        app = build_app(fake, await fake.open(), spec=fake.spec, batch_size=1, api_key="k")
        server = await serve(app, "0.0.0.0")
        await server.stop()

    asyncio.run(body())


def test_metrics_are_served_with_the_key_and_only_where_they_are_wanted() -> None:
    labels = ("run_id", "version", "backend", "target", "draft")
    metrics = Metrics(Recorder(dict.fromkeys(labels, "x")))

    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        async with client.get(f"{server.url}/metrics") as got:
            assert got.status == 401
        headers = {"Authorization": "Bearer secret"}
        async with client.post(f"{server.url}/v1/completions", json=PROMPT, headers=headers) as got:
            assert got.status == 200
        async with client.get(f"{server.url}/metrics", headers=headers) as got:
            assert got.status == 200
            page = await got.text()
        assert 'specbench_output_tokens_total{arm="spec",point="k3.bs4"} 3' in page.splitlines()

    async def none(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        async with client.get(f"{server.url}/metrics") as got:
            assert got.status == 404

    with_server(use, api_key="secret", metrics=metrics)
    with_server(none)
