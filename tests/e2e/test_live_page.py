"""The live page in a real browser, against a server that works through requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from specbench.config import SpecConfig
from specbench.server.app import RunningServer, build_app, serve
from tests.chrome import Tab, chromium
from tests.fakes import FakeBackend
from tests.programs import need

Use = Callable[[Tab, RunningServer], Awaitable[None]]
NUMBER = r"/^\d/.test(document.getElementById('%s').textContent)"


@asynccontextmanager
async def busy_server(**options: Any) -> AsyncIterator[RunningServer]:
    """A server on a scripted backend that always has requests in flight."""
    backend = FakeBackend(delay_s=0.02)
    facts = await backend.open()
    app = build_app(backend, facts, spec=SpecConfig.chain(3), batch_size=4, **options)
    server = await serve(app, drain_s=0.2)
    load = [asyncio.create_task(_ask(server, options.get("api_key"))) for _ in range(2)]
    try:
        yield server
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        await server.stop()


async def _ask(server: RunningServer, key: str | None) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with aiohttp.ClientSession(headers=headers) as client:
        for turn in itertools.count():
            body = {"prompt": "p", "max_tokens": 20 + turn % 3}
            async with client.post(server.url + "/v1/completions", json=body) as got:
                await got.read()


def in_browser(use: Use, **options: Any) -> None:
    program = need("chromium")

    async def body() -> None:
        async with busy_server(**options) as server, chromium(program) as tab:
            await use(tab, server)

    asyncio.run(body())


async def text(tab: Tab, name: str) -> str:
    return str(await tab.value(f"document.getElementById('{name}').innerText"))


def test_the_page_shows_live_figures_without_an_error(tmp_path: Path) -> None:
    async def use(tab: Tab, server: RunningServer) -> None:
        await tab.open(server.url)
        for name in ("accept", "flow", "step"):
            await tab.until(NUMBER % name)
        await tab.until("document.querySelectorAll('#c-accept path, #c-accept circle').length > 0")
        await tab.until("+document.getElementById('ended').textContent > 1")

        assert 1 < float(await text(tab, "accept")) < 4
        assert (await text(tab, "status")) == "Live"
        assert "num_steps 3" in await text(tab, "about")
        label = await tab.value("document.querySelector('#c-survival svg').ariaLabel")
        assert "position 1: " in label
        assert "position 3: " in label
        split = await text(tab, "c-split")
        assert "Verify" in split
        assert "%" in split
        for kind in "abrp":
            assert await tab.value(f"document.querySelectorAll('.steps .mark.{kind}').length") > 0
        outputs = await text(tab, "list")
        assert "é100" in outputs
        assert "length" in outputs
        assert "drafts accepted" in outputs

        picture = await tab.screenshot()
        assert picture.startswith(b"\x89PNG")
        (tmp_path / "live.png").write_bytes(picture)
        assert tab.problems == []

    in_browser(use)


def test_the_page_can_be_held_still() -> None:
    async def use(tab: Tab, server: RunningServer) -> None:
        await tab.open(server.url)
        await tab.until(NUMBER % "accept")
        await tab.value("document.getElementById('pause').click()")
        held = await text(tab, "flow-sub")
        await asyncio.sleep(1.2)
        assert await text(tab, "flow-sub") == held
        assert await tab.value("document.getElementById('pause').ariaPressed") == "true"
        await tab.value("document.getElementById('pause').click()")
        await tab.until(f"document.getElementById('flow-sub').innerText !== {held!r}")
        assert tab.problems == []

    in_browser(use)


def test_the_page_asks_for_the_key_and_says_when_it_is_wrong() -> None:
    async def use(tab: Tab, server: RunningServer) -> None:
        await tab.open(server.url)
        await tab.until("!document.getElementById('key').hidden")
        assert await text(tab, "accept") == "–"
        assert await tab.value("document.activeElement.type") == "password"
        await _send_key(tab, "wrong")
        await tab.until("!document.querySelector('#key .wrong').hidden")
        await _send_key(tab, "secret")
        await tab.until(NUMBER % "accept")
        assert await tab.value("document.getElementById('key').hidden")
        assert all("401" in problem for problem in tab.problems)

    in_browser(use, api_key="secret")


async def _send_key(tab: Tab, key: str) -> None:
    await tab.value(
        "(() => { const form = document.querySelector('#key form');"
        f"form.querySelector('[type=password]').value = '{key}'; form.requestSubmit(); }})()"
    )
