"""Whatever goes wrong with publishing is told once, and the run goes on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest

from specbench.collectors.live import Recorder
from specbench.collectors.publish import PublishConfig, publishing
from specbench.errors import ConfigError
from tests.prometheus_server import free_port

RUN = {"run_id": "r", "version": "1", "backend": "b", "target": "t", "draft": "d"}


def run(config: PublishConfig, *, scrape: bool = False) -> tuple[bool, list[str]]:
    """Publish an empty run; returns whether it was recorded, and what was told."""
    told: list[str] = []

    async def all_of_it() -> bool:
        async with publishing(config, lambda: Recorder(RUN), told.append) as published:
            ending = asyncio.create_task(published.finish("r"))
            if scrape:
                await asyncio.sleep(0.01)
                url = told[0].removeprefix("metrics on ")
                async with aiohttp.ClientSession() as session, session.get(url) as answer:
                    assert b"specbench_run_info" in await answer.read()
            await ending
            return published.recorder is not None

    return asyncio.run(all_of_it()), told


def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    assert run(PublishConfig()) == (False, [])


def test_the_page_stays_until_it_was_scraped() -> None:
    config = PublishConfig(listen="0", linger_s=60, api_key="of the measured server")
    recorded, told = run(config, scrape=True)
    assert recorded
    assert len(told) == 1
    assert told[0].startswith("metrics on http://127.0.0.1:")


def test_it_is_said_when_nobody_came() -> None:
    _, told = run(PublishConfig(listen="0", linger_s=0.01))
    assert "nobody has scraped the final metrics" in told[-1]


def test_no_key_beyond_loopback_is_told_and_the_run_goes_on() -> None:
    recorded, told = run(PublishConfig(listen="0.0.0.0:0"))
    assert recorded
    (only,) = told
    assert "an API key is required" in only


def test_a_taken_port_is_told_and_the_run_goes_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        _, told = run(PublishConfig(listen=str(taken.getsockname()[1])))
    (only,) = told
    assert only.startswith("metrics are not served, the run goes on: ")


def test_a_receiver_that_is_not_there_is_told_and_the_run_goes_on() -> None:
    recorded, told = run(PublishConfig(push=f"http://127.0.0.1:{free_port()}"))
    assert recorded
    (only,) = told
    assert only.startswith("metrics are not pushed: ")


@pytest.mark.parametrize(
    "bad",
    [
        {"listen": "port"},
        {"listen": "70000"},
        {"listen": "-1"},
        {"listen": "host:"},
        {"linger_s": 5.0},
        {"listen": "0", "linger_s": -1.0},
        {"push": "gateway"},
    ],
)
def test_flags_that_cannot_be_meant_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PublishConfig(**bad)
