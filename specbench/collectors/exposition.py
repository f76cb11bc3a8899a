"""``GET /metrics``: the page that a scraper reads, and a server of its own for a sweep.

The page is text format 0.0.4, or OpenMetrics 1.0 for a scraper that asks for it. Beyond loopback
the server wants the API key as a bearer token, as all of specbench does.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics_format

from specbench.collectors import text
from specbench.collectors.catalogue import Series
from specbench.collectors.live import Recorder
from specbench.errors import ConfigError

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_WRITE_OPENMETRICS: Callable[[CollectorRegistry], bytes] = openmetrics_format.generate_latest
LINGER_S = 5.0
MOST_LINGER_S = 60.0
_NS_PER_S = 1e9


class Metrics:
    """Everything that one process exposes, and when it was scraped.

    ``registry`` is its own, never the client library's global one; what samples by itself (GPU)
    registers there. ``recorder`` may be None when there is nothing else.
    """

    def __init__(self, recorder: Recorder | None = None) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.recorder = recorder
        self._scraped_ns: deque[int] = deque(maxlen=4)
        self._last: asyncio.Event | None = None

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type for a scraper that sends this ``Accept`` header."""
        openmetrics = "application/openmetrics-text" in accept
        families: Iterator[tuple[Series, Sequence[bytes]]] = (
            iter(()) if self.recorder is None else self.recorder.families()
        )
        body = text.page(families, openmetrics=openmetrics)
        if openmetrics:
            return body + _WRITE_OPENMETRICS(self.registry), OPENMETRICS
        return body + generate_latest(self.registry), PLAIN

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """The handler; a scrape counts when its last byte has been handed over.

        A scraper that has hung up meanwhile (its timeout is often one second) is no error.
        """
        last = self._last  # set when this page already shows the end
        body, kind = self.page(http.headers.get("Accept", ""))
        response = web.Response(body=body, headers={"Content-Type": kind})
        try:
            await response.prepare(http)
            await response.write_eof()
        except ConnectionError:
            return response
        self._scraped_ns.append(time.perf_counter_ns())
        if last is not None:
            last.set()
        return response

    async def last_scrape(self, limit_s: float | None = None) -> bool:
        """Wait for one more scrape; false when none came.

        Args:
            limit_s: how long; None waits for twice the longest of the last gaps between scrapes,
                at most a minute, or for 5 s when fewer than two were seen.
        """
        self._last = asyncio.Event()
        limit = self._patience_s() if limit_s is None else limit_s
        try:
            async with asyncio.timeout(limit):
                await self._last.wait()
        except TimeoutError:
            return False
        return True

    def _patience_s(self) -> float:
        gaps_ns = [after - before for before, after in itertools.pairwise(self._scraped_ns)]
        return min(MOST_LINGER_S, 2 * max(gaps_ns) / _NS_PER_S) if gaps_ns else LINGER_S


METRICS = web.AppKey("metrics", Metrics)


async def scrape(http: web.Request) -> web.StreamResponse:
    """GET /metrics of an application that holds a ``Metrics`` under ``METRICS``."""
    return await http.app[METRICS].answer(http)


class MetricsServer:
    """A server with this one route, for a process that serves nothing else. ``stop`` it."""

    def __init__(self, runner: web.AppRunner, host: str) -> None:
        self._runner, self._host = runner, host

    @classmethod
    async def start(
        cls, page: Metrics, host: str = "127.0.0.1", port: int = 0, *, api_key: str | None = None
    ) -> MetricsServer:
        """Listen (0 takes a free port).

        Raises:
            ConfigError: the address cannot be used, or it is beyond loopback and there is no key.
        """
        if not api_key and not is_loopback(host):
            raise ConfigError(
                f"Metrics on {host} can be read by other machines without a key.",
                expected="Beyond 127.0.0.1 an API key is required.",
                todo="Set SPECBENCH_API_KEY, or keep to 127.0.0.1.",
            )
        app = web.Application(middlewares=[_key_check(api_key)] if api_key else [])
        app[METRICS] = page
        app.router.add_get("/metrics", scrape)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except (OSError, OverflowError) as error:
            await runner.cleanup()
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"Metrics cannot be served on {host}:{port}: {reason}.",
                todo="Choose another --metrics-port, or stop what uses this one.",
            ) from None
        return cls(runner, host)

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._runner.addresses[0][1]}/metrics"

    async def stop(self) -> None:
        """Close the port."""
        await self._runner.cleanup()


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach.

    >>> [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "box")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _key_check(api_key: str) -> Middleware:
    """Refuse a scraper without the key. The comparison takes the same time wherever it fails."""
    wanted = f"Bearer {api_key}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, wanted):
            raise web.HTTPUnauthorized(text="Send the API key as Authorization: Bearer KEY.")
        return await handler(request)

    return check
