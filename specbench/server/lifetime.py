"""From the first line of the log to the exit code: load, listen, drain on a signal, stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from specbench import __version__
from specbench.backends.base import Backend, BackendFacts
from specbench.collectors.exposition import Metrics
from specbench.serve_config import ServeConfig
from specbench.server.app import RunningServer, build_app, check_address, serve
from specbench.server.logs import JsonLog

SIGNALS = (signal.SIGINT, signal.SIGTERM)
FLUSH_S = 2.0  # for connections to close once no request is in flight


async def run_service(
    backend: Backend,
    config: ServeConfig,
    *,
    api_key: str | None,
    log: JsonLog,
    started: Callable[[RunningServer], None],
    metrics: Callable[[BackendFacts], Metrics] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM, then let the requests in flight end.

    While it drains, new requests get 503 and ``/readyz`` says so. A second signal ends the
    process at once.

    Args:
        backend: not yet opened; closed when this returns.
        config: all settings.
        api_key: wanted from every client.
        log: gets start, drain, stop and a line per request.
        started: called once the server listens.
        metrics: makes what ``/metrics`` shows, once the backend is open; None has no such page.

    Returns:
        The exit code: 0 when every request ended, 3 when the limit cut some off.

    Raises:
        ConfigError: the address cannot be used (checked before models are loaded), or the engine
            cannot run the point.
        SpecbenchError: the models cannot be loaded.
    """
    check_address(config.host, config.port, has_key=bool(api_key))
    try:
        facts = await backend.open()
        await backend.configure(config.point.spec, config.batch_size)
        told = _first_signal()
        server = await _listen(
            backend, facts, config, api_key, log, None if metrics is None else metrics(facts)
        )
        started(server)
        log.info("drain", signal=(await told).name, in_flight=server.in_flight)
        cut_off = await server.drain(config.limits.drain_s)
        await server.stop()
        log.write("warning" if cut_off else "info", "stop", {"cut_off": cut_off})
    finally:
        await backend.close()
    return 3 if cut_off else 0


async def _listen(
    backend: Backend,
    facts: BackendFacts,
    config: ServeConfig,
    api_key: str | None,
    log: JsonLog,
    metrics: Metrics | None,
) -> RunningServer:
    """Put an open backend behind its routes, and log that it serves."""
    app = build_app(
        backend,
        facts,
        spec=config.point.spec,
        batch_size=config.batch_size,
        model=config.served_model_name,
        api_key=api_key,
        limits=config.limits,
        log=log,
        metrics=metrics,
    )
    server = await serve(app, config.host, config.port, drain_s=FLUSH_S)
    log.info(
        "start",
        url=server.url,
        point=config.point.spec.point_id,
        batch_size=config.batch_size,
        target=facts.target,
        draft=facts.draft,
        version=__version__,
        pid=os.getpid(),
        api_key=bool(api_key),
    )
    return server


def _first_signal() -> asyncio.Future[signal.Signals]:
    """Resolves at the first SIGINT or SIGTERM, which also makes a second one deadly again."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[signal.Signals] = loop.create_future()

    def tell(number: signal.Signals) -> None:
        for each in SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        first.set_result(number)

    for each in SIGNALS:
        loop.add_signal_handler(each, tell, each)
    return first
