"""The page: packaged, without outside assets, under a policy that its own parts pass."""

from __future__ import annotations

import base64
import hashlib
import re

import aiohttp

from specbench.server.app import RunningServer
from specbench.server.page import load_page
from tests.fakes import FakeBackend
from tests.unit.server.test_app import with_server


def test_the_page_names_no_outside_asset() -> None:
    html = load_page().html
    addresses = set(re.findall(r"https?://[^\s'\"]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name space, never fetched
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=[\"'](?!data:)", html)
    assert " style=" not in html  # the policy would ignore it
    assert not re.search(r"\son\w+=\"", html)


def test_the_policy_names_the_inline_parts_by_their_hashes() -> None:
    loaded = load_page()
    for kind in ("script", "style"):
        [text] = re.findall(rf"<{kind}>(.*?)</{kind}>", loaded.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in loaded.policy
    assert "default-src 'none'" in loaded.policy
    assert "unsafe" not in loaded.policy


def test_the_page_is_open_and_holds_no_data() -> None:
    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        async with client.get(server.url) as got:
            assert got.status == 200
            assert got.content_type == "text/html"
            assert got.headers["Content-Security-Policy"] == load_page().policy
            assert await got.text() == load_page().html

    with_server(use, api_key="secret")
