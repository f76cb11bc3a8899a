"""The page over HTTP: formats, keys, addresses, and the wait for the last scrape."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterable
from unittest import mock

import aiohttp
import pytest
from aiohttp.http_writer import StreamWriter
from aiohttp.test_utils import make_mocked_request
from prometheus_client import Counter, Metric
from prometheus_client.openmetrics import parser

from specbench.collectors import exposition
from specbench.collectors.exposition import Metrics, MetricsServer
from specbench.collectors.live import EngineState, Recorder
from specbench.collectors.points import Cell
from specbench.config import SpecConfig
from specbench.errors import ConfigError
from tests.programs import need

RUN = {"run_id": "r", "version": "1", "backend": "b", "target": "t", "draft": "d"}


def full() -> Metrics:
    """A page with every kind of series, and a collector of somebody else."""
    state = EngineState(running=1, queued=0, kv_used=3, kv_slots=9, graph_buckets=2)
    recorder = Recorder(RUN, state=lambda: state)
    cells = [Cell(spec=SpecConfig.chain(k), batch_size=2) for k in (0, 2)]
    recorder.plan(cells, saved=0)
    metrics = Metrics(recorder)
    Counter("specbench_other", "Of somebody else.", registry=metrics.registry).inc(2)
    return metrics


def over_http(
    metrics: Metrics,
    use: Callable[[aiohttp.ClientSession, MetricsServer], Awaitable[None]],
    api_key: str | None = None,
) -> None:
    async def run() -> None:
        server = await MetricsServer.start(metrics, api_key=api_key)
        try:
            async with aiohttp.ClientSession() as session:
                await use(session, server)
        finally:
            await server.stop()

    asyncio.run(run())


def test_promtool_finds_nothing_to_say() -> None:
    page, _ = full().page()
    done = subprocess.run(
        [need("promtool"), "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_format_is_what_the_scraper_asks_for() -> None:
    metrics = full()

    async def use(session: aiohttp.ClientSession, server: MetricsServer) -> None:
        async with session.get(server.url) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            plain = await answer.text()
        accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        async with session.get(server.url, headers=accept) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            strict = await answer.text()
        assert "# EOF" not in plain
        read: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families
        families = {family.name for family in read(strict)}
        assert {"specbench_verify_steps", "specbench_run", "specbench_other"} <= families
        async with session.get(server.url.removesuffix("metrics")) as answer:
            assert answer.status == 404

    over_http(metrics, use)


def test_with_a_key_it_is_wanted() -> None:
    async def use(session: aiohttp.ClientSession, server: MetricsServer) -> None:
        for given, status in ((None, 401), ("Bearer wrong", 401), ("Bearer secret", 200)):
            headers = {} if given is None else {"Authorization": given}
            async with session.get(server.url, headers=headers) as answer:
                assert answer.status == status

    over_http(full(), use, api_key="secret")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
def test_beyond_loopback_a_key_is_required(host: str) -> None:
    with pytest.raises(ConfigError, match="an API key is required"):
        asyncio.run(MetricsServer.start(Metrics(), host))


def test_a_port_in_use_is_said_with_its_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: .*in use"):
            asyncio.run(MetricsServer.start(Metrics(), port=port))


def test_only_a_scrape_that_begins_later_sees_the_end() -> None:
    metrics = full()

    async def use(session: aiohttp.ClientSession, server: MetricsServer) -> None:
        await (await session.get(server.url)).read()
        assert not await metrics.last_scrape(0.01)
        waiting = asyncio.create_task(metrics.last_scrape(30))
        await asyncio.sleep(0)
        await (await session.get(server.url)).read()
        assert await waiting

    over_http(metrics, use)


def test_the_wait_follows_the_scraper(monkeypatch: pytest.MonkeyPatch) -> None:
    async def patience(*times_s: float) -> float:
        metrics = Metrics()
        metrics._scraped_ns.extend(int(at * 1e9) for at in times_s)
        return metrics._patience_s()

    assert asyncio.run(patience()) == asyncio.run(patience(3.0)) == exposition.LINGER_S
    assert asyncio.run(patience(0, 15, 30.5)) == 31
    assert asyncio.run(patience(0, 100, 200)) == exposition.MOST_LINGER_S


def test_a_scraper_that_hung_up_is_no_error_and_no_scrape() -> None:
    metrics = full()

    async def run() -> bool:
        gone = mock.AsyncMock(spec=StreamWriter)
        gone.write_headers.side_effect = gone.write_eof.side_effect = ConnectionResetError
        waiting = asyncio.create_task(metrics.last_scrape(limit_s=0.05))
        await asyncio.sleep(0)
        await metrics.answer(make_mocked_request("GET", "/metrics", writer=gone))
        return await waiting

    assert asyncio.run(run()) is False
