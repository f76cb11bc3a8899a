"""A log line for every request that was answered with an error before it reached the engine."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from specbench.server.logs import JsonLog


def log_refusals(log: JsonLog) -> Middleware:
    """Log method, path and status of answers from 400 on; never the message, it quotes the body.

    A probe of ``/readyz`` that is told "not yet" is an answer, not a refusal.
    """

    @web.middleware
    async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if response.status >= 400 and request.path != "/readyz":
            write = log.error if response.status >= 500 and response.status != 503 else log.warning
            write("refused", method=request.method, path=request.path, status=response.status)
        return response

    return logged
