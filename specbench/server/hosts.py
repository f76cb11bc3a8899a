"""Which names a server without a key answers to.

A page of any site may make its own name resolve to 127.0.0.1 once it is loaded (DNS rebinding);
for the browser this server is then of the page's own origin, and the page may read every answer.
The ``Host`` header still holds the site's name.
"""

from __future__ import annotations

import ipaddress
import socket

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from specbench.server.fields import RefusedError

# No public name ends so: RFC 6761 and 6762, and ICANN's resolution 2024.07.29.06 on .internal.
_PRIVATE = (".localhost", ".local", ".internal")


def is_own_name(host: str) -> bool:
    """True for a ``Host`` that no other site can have: an address, a private or a dotless name.

    >>> [is_own_name(host) for host in ("127.0.0.1:8000", "[::1]", "LOCALHOST:1", "a.example:80")]
    [True, True, True, False]
    """
    try:
        name = (URL(f"http://{host}").host or "").lower()
    except ValueError:
        return False
    if name and "." not in name and ":" not in name:  # localhost, a container, a line of hosts
        return True
    if name == socket.gethostname().lower() or name.endswith(_PRIVATE):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@web.middleware
async def own_names_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request that was sent to another site's name."""
    host = request.headers.get("Host")
    if host is not None and not is_own_name(host):
        raise RefusedError(
            f"Without an API key this server does not answer as {host[:80]!r}.",
            todo="Ask 127.0.0.1 or localhost, or serve with SPECBENCH_API_KEY.",
            status=403,
            code="foreign_host",
        )
    return await handler(request)
