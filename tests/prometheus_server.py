"""A real Prometheus on a free loopback port, with its data in a folder that goes away.

Its first scrape of a target comes some six seconds after it was started, whatever the scrape
interval: wait for ``until(...)``, never for a time.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.programs import need

ROOT = Path(__file__).parents[1]
RULES = ROOT / "dashboards" / "rules.yml"
_CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: {rules}
scrape_configs:
  - {{job_name: specbench, static_configs: [{{targets: {targets}}}]}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series of an instant query."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusServer:
    """A running server."""

    url: str

    def query(self, expression: str) -> list[Sample]:
        """An instant query, now; raises AssertionError with the server's words when it is bad."""
        found = self.get("query", query=expression)["result"]
        return [Sample(labels=one["metric"], value=float(one["value"][1])) for one in found]

    def get(self, path: str, **parameters: str) -> Any:
        """``data`` of an answer of the HTTP API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def until(
        self, expression: str, seen: Callable[[list[Sample]], bool] = bool, *, limit_s: float = 60
    ) -> list[Sample]:
        """Repeat a query until ``seen`` likes what it gives; fails after ``limit_s``."""
        end_ns = time.perf_counter_ns() + int(limit_s * 1e9)
        while not seen(found := self.query(expression)):
            assert time.perf_counter_ns() < end_ns, f"{expression} gave {found} for {limit_s} s"
            time.sleep(0.1)
        return found


@contextlib.contextmanager
def prometheus(
    folder: Path, targets: Sequence[str] = (), *, rules: Sequence[Path] = (RULES,)
) -> Iterator[PrometheusServer]:
    """Run Prometheus until the block ends; it also takes remote writes.

    Args:
        folder: for its configuration and data; the data are deleted.
        targets: HOST:PORT of what to scrape every second, as job ``specbench``.
        rules: rule files.
    """
    program = need("prometheus")
    config, data = folder / "prometheus.yml", folder / "data"
    config.write_text(
        _CONFIG.format(rules=json.dumps([str(r) for r in rules]), targets=json.dumps([*targets]))
    )
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-remote-write-receiver",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        server = PrometheusServer(url=f"http://127.0.0.1:{port}")
        _wait_ready(server, process, folder / "prometheus.log")
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(data, ignore_errors=True)


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_ready(server: PrometheusServer, process: subprocess.Popen[bytes], log: Path) -> None:
    end_ns = time.perf_counter_ns() + 30_000_000_000
    while time.perf_counter_ns() < end_ns:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{server.url}/-/ready", timeout=5).close()
            return
        time.sleep(0.05)
    raise AssertionError(f"Prometheus is not ready after 30 s: {log.read_text()}")
