"""Headless Chromium by its DevTools protocol, over aiohttp: just what the page's tests need."""

from __future__ import annotations

import asyncio
import base64
import itertools
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "--window-size=1280,1500",
)  # fmt: skip
STARTS_WITHIN_S = 60.0


class Tab:
    """One page. ``problems`` collects console errors, exceptions and failed loads."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.problems: list[str] = []

    async def listen(self) -> None:
        """Sort what comes from the browser; runs as a task beside the test."""
        async for message in self._socket:
            data = message.json()
            if "id" in data:
                self._waiting.pop(data["id"]).set_result(data)
            else:
                self._note(data["method"], data.get("params", {}))

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(params["entry"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        answer = await asyncio.wait_for(self._waiting[number], STARTS_WITHIN_S)
        assert "error" not in answer, answer
        return dict(answer["result"])

    async def value(self, script: str) -> Any:
        """What a JavaScript expression gives, as plain data."""
        result = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(STARTS_WITHIN_S):
            while not await self.value(f"Boolean({script})"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def open(self, url: str) -> None:
        """Load a page and wait until it is there."""
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), STARTS_WITHIN_S)

    async def screenshot(self) -> bytes:
        """The whole page as a PNG."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def chromium(program: str) -> AsyncIterator[Tab]:
    """A browser with an empty profile and one tab; it is gone when the block ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program, *FLAGS, f"--user-data-dir={profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as client:
                async with client.get(f"http://127.0.0.1:{port}/json/list") as got:
                    pages = [one for one in await got.json() if one["type"] == "page"]
                async with client.ws_connect(
                    pages[0]["webSocketDebuggerUrl"], max_msg_size=2**26
                ) as socket:
                    tab = Tab(socket)
                    ear = asyncio.create_task(tab.listen())
                    yield tab
                    ear.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _port(path: Path) -> int:
    """The port that the browser chose; it writes it when it listens."""
    async with asyncio.timeout(STARTS_WITHIN_S):
        while not path.is_file() or "\n" not in path.read_text():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.05)
    return int(path.read_text().splitlines()[0])  # noqa: ASYNC240
