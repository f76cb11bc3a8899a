from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from specbench.dashboards.build import boards

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_images_are_pinned_and_ports_are_on_loopback() -> None:
    assert set(SERVICES) == {"specbench", "prometheus", "grafana"}
    for name, service in SERVICES.items():
        if "build" not in service:
            assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name


def test_no_secret_has_a_default() -> None:
    secret = re.compile(r"PASSWORD|KEY|TOKEN")
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if secret.search(name):
                assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", value), name
    assert ":-" not in TEXT


def test_what_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source, _, *mode = volume.split(":")
            if source.startswith("./"):
                assert (ROOT / source).exists(), source
                assert mode == ["ro"], source
            else:
                assert source in COMPOSE["volumes"]
    mounted = {Path(v.split(":")[0]).name for v in SERVICES["grafana"]["volumes"]}
    assert set(boards()) <= mounted


def test_names_agree() -> None:
    assert SERVICES["specbench"]["build"]["dockerfile"] == "docs/Containerfile"
    assert set(SERVICES["prometheus"]["secrets"]) == set(COMPOSE["secrets"])
    text = (ROOT / "dashboards" / "compose" / "prometheus.yml").read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in SERVICES
    assert port in SERVICES["specbench"]["command"]
    secret = Path(job["authorization"]["credentials_file"])
    assert secret.parent == Path("/run/secrets")
    assert secret.name in COMPOSE["secrets"]
    for service in SERVICES.values():
        assert set(service.get("depends_on", [])) <= set(SERVICES)
