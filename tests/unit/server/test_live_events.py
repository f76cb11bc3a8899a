"""The stream of the live page: bounded clients, slow ones dropped, heartbeats, a clean end."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import aiohttp
import pytest

from specbench.config import SpecConfig
from specbench.serve_config import LimitsConfig
from specbench.server.app import RunningServer
from specbench.server.fields import RefusedError
from specbench.server.live import LiveTap
from specbench.server.live_events import BEAT, HUB, LiveHub
from specbench.trace import Chunk
from tests.fakes import FakeBackend
from tests.unit.server.test_app import with_server


class Wire:
    """A connection that remembers whether it was broken off."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True


def new_hub(**options: Any) -> LiveHub:
    return LiveHub(tap=LiveTap(SpecConfig.chain(3), 4), **options)


def data_of(message: bytes | None) -> dict[str, Any]:
    assert message is not None
    assert message.startswith(b"data: ")
    assert message.endswith(b"\n\n")
    return dict(json.loads(message[6:]))


def test_the_first_message_is_whole_and_the_next_ones_are_parts() -> None:
    async def use() -> None:
        hub = new_hub(about={"model": "m"})
        flight = hub.tap.begin("r")
        hub.tap.see(flight, Chunk(at_ns=0, tokens=1, text="a"))
        client = hub.join(None)
        first = data_of(client.queue.get_nowait())
        assert first["about"] == {"model": "m"}
        assert len(first["outputs"][0]["pieces"]) == 1
        hub.publish()
        client.queue.get_nowait()  # may repeat what the first one had
        hub.tap.see(flight, Chunk(at_ns=0, tokens=1, text="b"))
        hub.publish()
        part = data_of(client.queue.get_nowait())
        assert "about" not in part
        assert [piece["text"] for piece in part["outputs"][0]["pieces"]] == ["b"]

    asyncio.run(use())


def test_a_client_that_does_not_read_is_dropped_and_the_others_stay() -> None:
    async def use() -> None:
        hub = new_hub(backlog=3)
        slow, quick = Wire(), Wire()
        hub.join(slow)
        reader = hub.join(quick)
        for _ in range(5):
            reader.queue.get_nowait()
            hub.publish()
        assert (slow.aborted, quick.aborted) == (True, False)
        assert hub.clients == {reader}

    asyncio.run(use())


def test_a_connection_that_is_not_read_is_broken_off() -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        hub = server.runner.app[HUB]
        hub.interval_s = 0.002
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, (server.host, server.port))
        deaf.sendall(b"GET /live/events HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(60):
            while not hub.clients:  # noqa: ASYNC110  # a set has no event
                await asyncio.sleep(0.01)
            [only] = hub.clients
            wire = only.connection
            assert isinstance(wire, asyncio.Transport)
            sender = wire.get_extra_info("socket")
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
            hub.tap.see(hub.tap.begin("r" * 4000), Chunk(at_ns=0, tokens=1, text="a"))
            while hub.clients:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert wire.is_closing()
        deaf.close()

    with_server(use)


def test_clients_are_bounded() -> None:
    async def use() -> None:
        hub = new_hub(most_clients=1)
        client = hub.join(None)
        with pytest.raises(RefusedError, match="1 clients watch") as refusal:
            hub.join(None)
        assert refusal.value.status == 503
        hub.leave(client)
        hub.join(None)

    asyncio.run(use())


def test_a_quiet_server_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        now_ns = 10**12
        hub = new_hub(heartbeat_s=10.0)
        client = hub.join(None)
        client.queue.get_nowait()
        monkeypatch.setattr("specbench.server.live_events.time.perf_counter_ns", lambda: now_ns)
        hub.tap.changed_ns = now_ns - 8 * 10**9
        hub.publish()
        assert client.queue.get_nowait() == BEAT
        now_ns += 9 * 10**9
        hub.publish()
        assert client.queue.empty()
        now_ns += 2 * 10**9
        hub.publish()
        assert client.queue.get_nowait() == BEAT

    asyncio.run(use())


def test_nothing_is_made_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = new_hub()
    monkeypatch.setattr(hub.tap, "state", lambda seen: pytest.fail("nobody watches"))
    hub.publish()


def test_the_stream_over_http_follows_a_request_and_ends_with_the_server() -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        async with client.get(server.url + "/live/events") as stream:
            assert stream.headers["Content-Type"].startswith("text/event-stream")
            body = {"prompt": "p", "max_tokens": 12}
            async with client.post(server.url + "/v1/completions", json=body) as answer:
                await answer.read()
            async with asyncio.timeout(20):
                while True:
                    block = await stream.content.readuntil(b"\n\n")
                    state = data_of(block)
                    if state["ended"]:
                        break
            assert state["ended"] == {"length": 1}
            assert state["tokens"] == 12
            await server.stop()
            async with asyncio.timeout(20):
                await stream.read()  # comes to its end

    with_server(use)


def test_watchers_over_http_are_refused_beyond_the_limit_and_without_the_key() -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        url, key = server.url + "/live/events", {"Authorization": "Bearer secret"}
        async with client.get(url) as refused:
            assert refused.status == 401
        async with client.get(url, headers=key) as first:
            assert first.status == 200
            async with client.get(url, headers=key) as second:
                assert second.status == 503
                assert "watch already" in (await second.json())["error"]["message"]

    with_server(use, api_key="secret", limits=LimitsConfig(live_clients=1))
