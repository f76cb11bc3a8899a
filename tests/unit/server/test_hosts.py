"""A server without a key answers to names that no other site can have."""

from __future__ import annotations

import socket

import aiohttp
import pytest

from specbench.server.app import RunningServer
from specbench.server.hosts import is_own_name
from tests.fakes import FakeBackend
from tests.unit.server.test_app import answer, with_server

OWN = (
    *("127.0.0.1", "127.0.0.1:80", "[::1]:80", "192.168.0.9:1", "localhost", "Localhost:8000"),
    *("box.local", "host.docker.internal:8000", "a.localhost", socket.gethostname(), "box:80"),
)
FOREIGN = (
    *("example.com", "example.com:8000", "127.0.0.1.example.com", "localhost.example.com", ""),
    *("evil.internal.example", "[::1", "localhost@example.com", "example.com."),
)


@pytest.mark.parametrize("host", OWN)
def test_names_of_ones_own(host: str) -> None:
    assert is_own_name(host)


@pytest.mark.parametrize("host", FOREIGN)
def test_names_that_another_site_can_have(host: str) -> None:
    assert not is_own_name(host)


@pytest.mark.parametrize(("key", "status"), [(None, 403), ("s3cret", 200)])
def test_a_rebound_name_is_refused_where_no_key_protects(key: str | None, status: int) -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        headers = {"Host": "site.example:8000", "Authorization": f"Bearer {key}"}
        got, data = await answer(client.get(server.url + "/server_info", headers=headers))
        assert got == status
        if key is None:
            assert data["error"]["code"] == "foreign_host"
            assert (await answer(client.get(server.url + "/server_info")))[0] == 200

    with_server(use, api_key=key)
