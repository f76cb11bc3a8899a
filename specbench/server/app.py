"""Put the routes together, and run them on a port."""

from __future__ import annotations

import hmac
import os
import socket
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from specbench import __version__
from specbench.backends.base import Backend, BackendFacts
from specbench.collectors.exposition import METRICS, Metrics, is_loopback, scrape
from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.serve_config import LimitsConfig
from specbench.server.fields import RefusedError
from specbench.server.generate_route import generate
from specbench.server.hosts import own_names_only
from specbench.server.info_routes import (
    configure,
    health,
    model_info,
    models,
    ready,
    server_info,
)
from specbench.server.live import LiveTap
from specbench.server.live_events import HUB, LiveHub, live_events
from specbench.server.logs import JsonLog
from specbench.server.openai_routes import chat_completions, completions
from specbench.server.page import page
from specbench.server.refusals import log_refusals
from specbench.server.replies import MAX_BODY_BYTES, errors_as_json
from specbench.server.service import SERVICE, Service

HAS_KEY = web.AppKey("has_key", bool)
_OPEN_PATHS = frozenset({"/", "/health", "/healthz", "/readyz"})
_ROUTES = (
    web.get("/", page),
    web.get("/live/events", live_events),
    web.get("/health", health),
    web.get("/healthz", health),
    web.get("/readyz", ready),
    web.get("/v1/models", models),
    web.get("/server_info", server_info),
    web.get("/get_model_info", model_info),
    web.post("/v1/completions", completions),
    web.post("/v1/chat/completions", chat_completions),
    web.post("/generate", generate),
    web.post("/specbench/configure", configure),
)


def build_app(
    backend: Backend,
    facts: BackendFacts,
    *,
    spec: SpecConfig,
    batch_size: int,
    model: str | None = None,
    api_key: str | None = None,
    limits: LimitsConfig = LimitsConfig(),  # noqa: B008  # frozen
    log: JsonLog | None = None,
    metrics: Metrics | None = None,
) -> web.Application:
    """The application around one backend, not yet listening.

    Args:
        backend: opened, and configured to ``spec`` and ``batch_size``; the caller closes it.
        facts: what ``backend.open`` returned.
        spec: the point that is running; ``POST /specbench/configure`` switches it later.
        batch_size: how many requests run together.
        model: the name to serve under; None takes the target's.
        api_key: when given, every route but the health checks and the live page (which holds no
            data) wants it as a bearer token; else a foreign ``Host`` is refused (``hosts``).
        limits: of bodies, requests in flight, and the live page.
        log: gets a line per request and per refusal; None logs nothing.
        metrics: what ``GET /metrics`` shows, and the recorder of what is served; None has neither.
    """
    middlewares = _middlewares(api_key, log)
    app = web.Application(middlewares=middlewares, client_max_size=limits.max_body_bytes)
    app[MAX_BODY_BYTES] = limits.max_body_bytes
    app[HAS_KEY] = bool(api_key)
    live = LiveTap(spec, batch_size, most_outputs=limits.live_outputs)
    about = {"model": model or facts.target, "draft": facts.draft, "version": __version__}
    if metrics is not None:
        app[METRICS] = metrics
        app.router.add_get("/metrics", scrape)
    app[HUB] = LiveHub(tap=live, most_clients=limits.live_clients, about=about)
    app[HUB].join_app(app)
    app[SERVICE] = Service(
        backend,
        facts,
        model=model or facts.target,
        spec=spec,
        batch_size=batch_size,
        max_in_flight=limits.max_in_flight,
        live=live,
        log=log,
        recorder=None if metrics is None else metrics.recorder,
    )
    app.add_routes(_ROUTES)
    return app


def _middlewares(api_key: str | None, log: JsonLog | None) -> list[Middleware]:
    """From the outermost on: the log sees what errors have become."""
    logged = [] if log is None else [log_refusals(log)]
    return [*logged, errors_as_json, _key_check(api_key) if api_key else own_names_only]


def _key_check(api_key: str) -> Middleware:
    """Refuse requests without the key. The comparison takes the same time wherever it fails."""
    wanted = f"Bearer {api_key}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if request.path not in _OPEN_PATHS and not hmac.compare_digest(given, wanted):
            raise RefusedError(
                "The API key is missing or wrong.",
                todo="Send it as Authorization: Bearer KEY.",
                status=401,
                code="invalid_api_key",
            )
        return await handler(request)

    return check


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A listening server; ``stop`` it in the event loop that started it."""

    host: str
    port: int
    runner: web.AppRunner

    @property
    def url(self) -> str:
        """The base address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def in_flight(self) -> int:
        """Requests that are being served."""
        return self.runner.app[SERVICE].in_flight

    async def drain(self, limit_s: float) -> int:
        """Refuse new requests with 503 and wait for those in flight; returns how many are left."""
        return await self.runner.app[SERVICE].drain(limit_s)

    async def stop(self) -> None:
        """Take no new request, let those in flight end within the limit, cancel the rest."""
        self.runner.app[SERVICE].draining = True
        await self.runner.cleanup()


async def serve(
    app: web.Application, host: str = "127.0.0.1", port: int = 0, *, drain_s: float = 10.0
) -> RunningServer:
    """Listen on ``host`` and ``port`` (0 takes a free one) and return at once.

    Args:
        app: from ``build_app``.
        host: beyond loopback the application must have an API key.
        port: TCP port.
        drain_s: how long ``stop`` waits for requests in flight.

    Raises:
        ConfigError: no key beyond loopback, or the address cannot be used.
    """
    check_address(host, port, has_key=app[HAS_KEY])
    host = _numeric(host)
    # A handler is cancelled when its client goes away, which cancels the request in the engine.
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=drain_s
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise _cannot_listen(host, port, error) from None
    return RunningServer(host=host, port=runner.addresses[0][1], runner=runner)


def check_address(host: str, port: int, *, has_key: bool) -> None:
    """See that an address may be used and is free, before anything expensive is done.

    Raises:
        ConfigError: no key beyond loopback, no such port, or the address cannot be used.
    """
    if not is_loopback(host) and not has_key:
        raise ConfigError(
            f"Serving on {host or 'every address'} lets other machines in without a key.",
            expected="Beyond 127.0.0.1 an API key is required.",
            todo="Set SPECBENCH_API_KEY or api_key_file, or serve on 127.0.0.1.",
        )
    if not 0 <= port <= 65535:
        raise ConfigError(f"port={port}.", expected="A TCP port, or 0 for a free one.")
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            _numeric(host) or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as trial:
            if os.name == "posix":  # as asyncio does: a port in TIME_WAIT is free
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen(1)
    except OSError as error:
        raise _cannot_listen(host, port, error) from None


def _numeric(host: str) -> str:
    """One address for localhost: port 0 would give its two addresses two different ports."""
    return "127.0.0.1" if host == "localhost" else host


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"Cannot listen on {host}:{port}: {error.strerror or error}.",
        todo="Choose another port with --port, or stop what uses this one.",
    )
