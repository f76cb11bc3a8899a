from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specbench.dashboards.rule_files import Rule, read_rules
from specbench.errors import ConfigError, OutputError

TEXT = """
groups:
  - name: figures
    rules:
      - {record: a:b, expr: up}
  - name: alerts
    rules:
      - alert: Down
        expr: >-
          up == 0
        for: 2m
        labels: {severity: warning}
        annotations: {summary: "Down."}
"""


def test_rules_in_order(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(TEXT, encoding="utf-8")
    record, alert = read_rules(path)
    assert (record.name, record.alert, record.lasting) == ("a:b", False, "0s")
    assert alert == Rule(
        group="alerts",
        name="Down",
        expr="up == 0",
        alert=True,
        lasting="2m",
        labels={"severity": "warning"},
        annotations={"summary": "Down."},
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be read"):
        read_rules(tmp_path / "rules.yml")


def test_without_pyyaml_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[dashboards\]'"):
        read_rules(tmp_path / "rules.yml")
