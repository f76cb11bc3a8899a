"""The metrics of one sweep: served while it runs, held until they were read, pushed at its end.

Nothing here can end a sweep: what goes wrong is told once, and the sweep goes on without.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from prometheus_client.registry import Collector

from specbench.collectors.exposition import Metrics, MetricsServer, is_loopback
from specbench.collectors.live import Recorder
from specbench.collectors.push import check_target, push
from specbench.errors import ConfigError, SpecbenchError

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishConfig:
    """What is asked for; the default publishes nothing.

    ``listen`` is PORT or HOST:PORT (0 takes a free port), ``push`` an address for ``push``.
    ``linger_s`` is how long the last scrape is waited for; None decides by the scraper's own
    interval (``Metrics.last_scrape``). ``api_key`` is wanted from scrapers beyond loopback only:
    it may be there for the outside server that is measured.

    Raises:
        ConfigError: a value that cannot be meant.
    """

    listen: str | None = None
    push: str | None = None
    linger_s: float | None = None
    api_key: str | None = None

    def __post_init__(self) -> None:
        if self.linger_s is not None and (not 0 <= self.linger_s < math.inf or self.listen is None):
            raise ConfigError(
                f"--metrics-linger={self.linger_s:g} with --metrics-port={self.listen}.",
                expected="Seconds from 0 on, together with --metrics-port.",
            )
        if self.listen is not None:
            self.address()
        if self.push is not None:
            check_target(self.push)

    @property
    def wanted(self) -> bool:
        """True when anything is published."""
        return self.listen is not None or self.push is not None

    def address(self) -> tuple[str, int]:
        """Host and port of ``listen``.

        >>> PublishConfig(listen="9464").address(), PublishConfig(listen="[::1]:0").address()
        (('127.0.0.1', 9464), ('::1', 0))
        """
        host, _, port = (self.listen or "").rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise ConfigError(
                f"--metrics-port={self.listen} is no port.", expected="PORT or HOST:PORT."
            )
        return host.strip("[]") or "127.0.0.1", int(port)


class Publisher:
    """What ``publishing`` yields. ``recorder`` is None when nothing is published."""

    def __init__(
        self, config: PublishConfig, metrics: Metrics, server: MetricsServer | None, tell: Tell
    ) -> None:
        self.metrics = metrics
        self._config, self._server, self._tell = config, server, tell
        self._began = dt.datetime.now(dt.UTC)

    @property
    def recorder(self) -> Recorder | None:
        """What the run is counted in."""
        return self.metrics.recorder

    def add(self, collector: Collector | None) -> None:
        """Publish what ``collector`` has too; None has nothing."""
        if collector is not None:
            self.metrics.registry.register(collector)

    async def finish(self, run_id: str) -> None:
        """The run is over and all is counted: push, then wait for the scrape that sees the end."""
        if self._config.push is not None:
            page, _ = self.metrics.page()
            try:
                await push(page, self._config.push, run_id=run_id, began=self._began)
                self._tell("metrics are pushed")
            except SpecbenchError as error:
                self._tell(f"metrics are not pushed: {error}")
        if self._server is not None and not await self.metrics.last_scrape(self._config.linger_s):
            self._tell(
                "nobody has scraped the final metrics; raise --metrics-linger above the scrape "
                "interval, or give --metrics-push"
            )


@contextlib.asynccontextmanager
async def publishing(
    config: PublishConfig, make: Callable[[], Recorder], tell: Tell
) -> AsyncIterator[Publisher]:
    """Serve ``/metrics`` until the block ends.

    Args:
        config: what is asked for.
        make: makes the recorder, when there is anything to record for.
        tell: hears where metrics are served, and what goes wrong.
    """
    metrics = Metrics(make() if config.wanted else None)
    server = None
    if config.listen is not None:
        try:
            host, port = config.address()
            key = None if is_loopback(host) else config.api_key
            server = await MetricsServer.start(metrics, host, port, api_key=key)
            tell(f"metrics on {server.url}")
        except ConfigError as error:
            tell(f"metrics are not served, the run goes on: {error}")
    try:
        yield Publisher(config, metrics, server, tell)
    finally:
        if server is not None:
            await server.stop()
