"""Pushing: what a receiver gets, what it may answer, and a real Prometheus at the other end."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from specbench.collectors.push import check_target, push
from specbench.errors import ConfigError, UnreachableError
from tests.prometheus_server import free_port, prometheus

PAGE = b"""\
# HELP specbench_verify_steps_total Verify steps.
# TYPE specbench_verify_steps_total counter
specbench_verify_steps_total{arm="spec",point="k3.bs1"} 42
# TYPE specbench_requests_running gauge
specbench_requests_running 3
"""


def send(address: str, page: bytes = PAGE, run_id: str = "run 1/é") -> None:
    began = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=20)
    asyncio.run(push(page, address, run_id=run_id, began=began))


def receiver(
    status: int, use: Callable[[str], Awaitable[None]], said: str = ""
) -> list[tuple[str, str, str, bytes]]:
    """Run ``use`` with the address of a receiver; returns the requests that it got."""
    got: list[tuple[str, str, str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        kind = request.headers["Content-Type"]
        got.append((request.method, request.raw_path, kind, await request.read()))
        return web.Response(status=status, text=said)

    async def run() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", take)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            await use(f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    asyncio.run(run())
    return got


def test_a_pushgateway_gets_the_page_under_the_run() -> None:
    async def use(address: str) -> None:
        await push(PAGE, f"{address}/", run_id="run 1/é", began=dt.datetime.now(dt.UTC))

    assert receiver(200, use) == [
        (
            "PUT",
            "/metrics/job/specbench/instance/run%201%2F%C3%A9",
            "text/plain; version=0.0.4; charset=utf-8",
            PAGE,
        )
    ]


def test_a_refusal_is_told_with_the_receivers_words() -> None:
    async def use(address: str) -> None:
        with pytest.raises(UnreachableError, match=r"refused the metrics with 400 .*: bad page"):
            await push(PAGE, address, run_id="r", began=dt.datetime.now(dt.UTC))

    assert len(receiver(400, use, said="bad page")) == 1


def test_nobody_there_is_one_clear_error_without_the_password() -> None:
    with pytest.raises(UnreachableError) as caught:
        send(f"http://me:secret@127.0.0.1:{free_port()}")
    assert "could not be pushed to http://127.0.0.1:" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["gateway:9091", "ftp://host/x", "http://", "http://[::1", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        check_target(address)


def test_a_real_prometheus_takes_a_remote_write(tmp_path: Path) -> None:
    with prometheus(tmp_path) as server:
        send(f"{server.url}/api/v1/write")
        (steps,) = server.until("specbench_verify_steps_total")
        (rise,) = server.query("sum(increase(specbench_verify_steps_total[1m]))")
        (running,) = server.query("specbench_requests_running")
        assert not server.query("specbench_requests_running offset 10s")

    assert steps.value == 42
    assert steps.labels == {
        "__name__": "specbench_verify_steps_total",
        "job": "specbench",
        "instance": "run 1/é",
        "arm": "spec",
        "point": "k3.bs1",
    }
    assert rise.value > 40  # by extrapolation to the window's edges, so not to the digit
    assert running.value == 3
