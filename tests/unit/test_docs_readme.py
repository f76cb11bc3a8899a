"""What a newcomer types: how specbench is installed, ports that agree, files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from specbench.serve_config import ServeConfig, load_serve_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    *(path for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".service", ""}),
]
SOURCES = sorted((ROOT / "specbench").rglob("*.py"))


def test_nobody_is_sent_to_the_other_package_of_this_name() -> None:
    """PyPI holds another program called specbench: an install is always of a clone."""
    wrong = re.compile(r"""pip install ["']?specbench\b|specbench\[(?:engine|dashboards|dev)\]""")
    texts = {
        path: path.read_text(encoding="utf-8") for path in [*PAGES, *SOURCES] if path.is_file()
    }
    assert [str(path) for path, text in texts.items() if wrong.search(text)] == []


def test_prometheus_scrapes_what_the_pages_start() -> None:
    config = yaml.safe_load((ROOT / "dashboards" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    scraped = {target.split(":")[1] for target in job["static_configs"][0]["targets"]}
    texts = [path.read_text(encoding="utf-8") for path in PAGES if path.suffix == ".md"]
    named = {port for text in texts for port in re.findall(r"--metrics-port[ =](\d+)", text)}
    assert named == {"9464"}
    assert scraped == {*named, str(ServeConfig().port)}


@pytest.mark.parametrize("page", ["README.md", "docs/service.md"])
def test_the_settings_that_a_page_serves_with_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (path,) = re.findall(r"^specbench serve --config (\S+)", text, re.MULTILINE)
    config = load_serve_config(ROOT / path, {})
    assert config.models.target is None  # the shipped pair, which is always there
    assert (config.host, config.port) == (ServeConfig().host, ServeConfig().port)


def test_a_push_says_where_its_token_comes_from() -> None:
    (line,) = re.findall(r"^.*specbench dashboards push.*$", README, re.MULTILINE)
    assert line.startswith("GRAFANA_TOKEN=")
