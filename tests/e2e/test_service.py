"""``specbench serve`` as a process: from its config file to its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from specbench import cli
from tests import tiny

ROOT = Path(__file__).parents[2]
STREAM = {"prompt": "hello", "max_tokens": 150, "stream": True, "ignore_eos": True}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    tiny.write_pair(folder / "pair")
    path = folder / "serve.toml"
    path.write_text(
        "port = 0\nbatch_size = 2\n"
        '[models]\ntarget = "pair/target"\ndraft = "pair/draft"\n'
        "[engine]\nmax_len = 256\n[limits]\ndrain_s = 60\n",
        encoding="utf-8",
    )
    return path


class Server:
    """The process and what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def line(self, event: str) -> dict[str, Any]:
        """The next log line of this event; every line on stderr must be JSON."""
        assert self.process.stderr is not None
        async with asyncio.timeout(120):
            while True:
                raw = await self.process.stderr.readline()
                assert raw, f"ended before it logged {event}: {self.lines}"
                self.lines.append(json.loads(raw))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]

    async def code(self) -> int:
        """The exit code."""
        async with asyncio.timeout(120):
            return await self.process.wait()


@asynccontextmanager
async def running(config: Path, *flags: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "specbench.cli", "serve", "--config", str(config), *flags,
        cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SPECBENCH_API_KEY": ""},
    )  # fmt: skip
    try:
        yield Server(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def status(client: aiohttp.ClientSession, url: str) -> int:
    async with client.get(url) as got:
        return got.status


def test_a_drained_stream_ends_whole_and_new_requests_are_refused(config: Path) -> None:
    async def use() -> None:
        async with running(config) as server, aiohttp.ClientSession() as client:
            start = await server.line("start")
            assert (start["point"], start["batch_size"]) == ("k3", 2)
            url = start["url"]
            assert await status(client, url + "/healthz") == 200
            assert await status(client, url + "/readyz") == 200

            async with client.post(url + "/v1/completions", json=STREAM) as stream:
                await stream.content.readuntil(b"\n\n")
                server.process.send_signal(signal.SIGTERM)
                drain = await server.line("drain")
                assert (drain["signal"], drain["in_flight"]) == ("SIGTERM", 1)
                body = {**STREAM, "stream": False}
                async with client.post(url + "/v1/completions", json=body) as refused:
                    assert refused.status == 503
                assert await status(client, url + "/readyz") == 503
                assert await status(client, url + "/healthz") == 200
                rest = await stream.read()
            assert rest.endswith(b"data: [DONE]\n\n")
            assert b'"finish_reason":"length"' in rest
            stop = await server.line("stop")
            assert stop["cut_off"] == 0
            assert await server.code() == 0
            [request] = [line for line in server.lines if line["event"] == "request"]
            assert (request["outcome"], request["tokens"]) == ("length", 150)
            assert request["accepted"] > 0
            assert not any("hello" in json.dumps(line) for line in server.lines)

    asyncio.run(use())


def test_a_second_signal_ends_it_at_once(config: Path) -> None:
    async def use() -> None:
        async with running(config) as server, aiohttp.ClientSession() as client:
            url = (await server.line("start"))["url"]
            async with client.post(url + "/v1/completions", json=STREAM) as stream:
                await stream.content.readuntil(b"\n\n")
                server.process.send_signal(signal.SIGTERM)
                await server.line("drain")
                server.process.send_signal(signal.SIGTERM)
                assert await server.code() == -signal.SIGTERM

    asyncio.run(use())


def test_the_drain_limit_cuts_off_what_is_left_and_says_so(config: Path, tmp_path: Path) -> None:
    short = config.with_name("short.toml")
    text = config.read_text(encoding="utf-8").replace("drain_s = 60", "drain_s = 0.0")
    short.write_text(text, encoding="utf-8")

    async def use() -> None:
        async with running(short) as server, aiohttp.ClientSession() as client:
            url = (await server.line("start"))["url"]
            async with client.post(url + "/v1/completions", json=STREAM) as stream:
                await stream.content.readuntil(b"\n\n")
                server.process.send_signal(signal.SIGINT)
                assert (await server.line("stop"))["cut_off"] == 1
                assert await server.code() == 3

    asyncio.run(use())


def test_a_port_in_use_is_one_clear_message_before_any_model_is_loaded(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["serve", "--config", str(config), "--port", port, "--target", "/nowhere"]
        assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"Cannot listen on 127.0.0.1:{port}" in error
    assert "--port" in error


def test_beyond_loopback_a_key_is_wanted(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECBENCH_API_KEY", raising=False)
    assert cli.main(["serve", "--config", str(config), "--host", "0.0.0.0"]) == 2
    assert "api_key_file" in capsys.readouterr().err


def test_a_wrong_config_file_is_one_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "serve.toml"
    path.write_text("[limits]\ndrain = 1\n", encoding="utf-8")
    assert cli.main(["serve", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "Did you mean 'drain_s'?" in error
