"""``GET /``: the live page, one file without outside assets, under a strict content policy."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

from aiohttp import web

from specbench.report.page import asset

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The page and the policy that lets run just its own script and style."""

    html: str
    policy: str


@functools.cache
def load_page() -> Page:
    """Read the packaged file once, and name its inline parts by their hashes."""
    html = (files("specbench.server") / "assets" / "live.html").read_text(encoding="utf-8")
    html = html.replace("/*{steps.css}*/", asset("steps.css"))
    hashes: dict[str, str] = {}
    for kind, text in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind] = f"'sha256-{digest}'"
    policy = (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return Page(html=html, policy=policy)


async def page(_: web.Request) -> web.Response:
    """GET /. It holds no data: those come by /live/events, which asks for the key."""
    loaded = load_page()
    return web.Response(
        text=loaded.html,
        content_type="text/html",
        headers={
            "Content-Security-Policy": loaded.policy,
            "Cache-Control": "no-cache",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        },
    )
