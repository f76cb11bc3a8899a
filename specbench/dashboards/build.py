"""All boards, and the files made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from specbench.dashboards.alerts import grafana_alerts
from specbench.dashboards.compare import compare
from specbench.dashboards.live import live_run
from specbench.dashboards.panels import Json
from specbench.dashboards.sweep import sweep
from specbench.errors import OutputError

RULES = "rules.yml"
ALERTS = "grafana/provisioning/alerting/specbench.yml"


def boards() -> Mapping[str, Json]:
    """The three boards by file name."""
    return {"live.json": live_run(), "sweep.json": sweep(), "compare.json": compare()}


def files(folder: Path) -> Mapping[str, str]:
    """What ``write`` writes: the boards, and Grafana's alerts where ``folder`` has rules.yml."""
    found = {
        name: json.dumps(board, indent=1, ensure_ascii=False) + "\n"
        for name, board in boards().items()
    }
    rules = folder / RULES
    if rules.is_file():
        found[ALERTS] = grafana_alerts(rules)
    return found


def write(folder: Path) -> tuple[Path, ...]:
    """Write every file; returns their paths.

    Raises:
        OutputError: the folder cannot be written, or its rules.yml is not one.
    """
    written = []
    for name, text in files(folder).items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}.") from error
        written.append(path)
    return tuple(written)
