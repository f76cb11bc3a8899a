"""Hand the final counters over at the end of a short run, which a scraper would have missed.

Two receivers, told apart by the address: one that ends in ``/api/v1/write`` takes Prometheus'
remote write (Prometheus with --web.enable-remote-write-receiver, Mimir, VictoriaMetrics), any
other is the base of a Pushgateway.
"""

from __future__ import annotations

import datetime as dt
from urllib.parse import quote

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from specbench.collectors import remote_write
from specbench.collectors.exposition import PLAIN
from specbench.errors import ConfigError, UnreachableError

JOB = "specbench"
TIMEOUT_S = 10.0
REMOTE_WRITE_PATH = "/api/v1/write"


def check_target(address: str) -> URL:
    """The address as a URL.

    Raises:
        ConfigError: it is none, or not of http.
    """
    try:
        url = URL(address)
        sound = url.scheme in ("http", "https") and bool(url.host)
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(
            f"--metrics-push: {address!r} is not an address.",
            expected="http://HOST:9091 for a Pushgateway, or http://HOST:9090/api/v1/write.",
        )
    return url


async def push(page: bytes, address: str, *, run_id: str, began: dt.datetime) -> None:
    """Send a page in text format 0.0.4; what an earlier push of the same run sent is replaced.

    Series get the labels ``job="specbench"`` and ``instance=run_id``. By remote write each
    counter is sent twice, as 0 at ``began`` and with its value now, so that ``increase()`` over
    the run sees it.

    Raises:
        ConfigError: the address is none.
        UnreachableError: nobody answers there, or the answer is a refusal.
    """
    url = check_target(address)
    shown = url.with_user(None).with_password(None)
    if url.path.rstrip("/").endswith(REMOTE_WRITE_PATH):
        method, body, headers = "POST", _write_request(page, run_id, began), remote_write.HEADERS
    else:
        group = f"metrics/job/{JOB}/instance/{quote(run_id, safe='')}"
        url = URL(f"{str(url).rstrip('/')}/{group}", encoded=True)
        method, body, headers = "PUT", page, {"Content-Type": PLAIN}
    try:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, data=body, headers=headers) as answer,
        ):
            if answer.status >= 300:
                said = (await answer.text(errors="replace")).strip()[:200]
                raise UnreachableError(
                    f"{shown} refused the metrics with {answer.status} {answer.reason}: {said}",
                    todo="Check the address and what it accepts.",
                )
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = str(error) or f"no answer within {TIMEOUT_S:g} s"
        raise UnreachableError(
            f"Metrics could not be pushed to {shown}: {reason}.",
            todo="Start the receiver, or give another --metrics-push.",
        ) from None


def _write_request(page: bytes, run_id: str, began: dt.datetime) -> bytes:
    """The page as a compressed remote-write request."""
    start_ms = round(began.timestamp() * 1000)
    now_ms = max(start_ms + 1, round(dt.datetime.now(dt.UTC).timestamp() * 1000))
    series = []
    for family in text_string_to_metric_families(page.decode()):
        rises = family.type in ("counter", "histogram")
        for sample in family.samples:
            labels = {"__name__": sample.name, "job": JOB, "instance": run_id, **sample.labels}
            points = [(0.0, start_ms)] if rises else []
            series.append((labels, [*points, (sample.value, now_ms)]))
    return remote_write.encode(series)
