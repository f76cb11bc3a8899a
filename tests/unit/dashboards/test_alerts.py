from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from specbench.dashboards.alerts import DATASOURCE_UID, grafana_alerts
from specbench.dashboards.rule_files import read_rules

ROOT = Path(__file__).parents[3]
RULES = ROOT / "dashboards" / "rules.yml"


def _rules() -> list[dict[str, Any]]:
    parsed = yaml.safe_load(grafana_alerts(RULES))
    assert parsed["apiVersion"] == 1
    return [rule for group in parsed["groups"] for rule in group["rules"]]


def test_each_alert_of_prometheus_is_one_of_grafana() -> None:
    alerts = [rule for rule in read_rules(RULES) if rule.alert]
    made = _rules()
    assert [rule["title"] for rule in made] == [alert.name for alert in alerts]
    assert [rule["data"][0]["model"]["expr"] for rule in made] == [a.expr for a in alerts]
    assert [rule["for"] for rule in made] == [a.lasting for a in alerts]
    assert len({rule["uid"] for rule in made}) == len(alerts)


def test_an_alert_fires_for_any_value_and_not_for_none() -> None:
    for rule in _rules():
        steps = {step["refId"]: step for step in rule["data"]}
        assert rule["condition"] == "fires"
        assert rule["noDataState"] == "OK"
        assert steps["query"]["datasourceUid"] == DATASOURCE_UID
        assert steps["found"]["model"]["expression"].startswith("is_number($query)")
        assert steps["fires"]["model"]["expression"] == "found"


def test_texts_use_no_dollar_that_grafana_could_take_for_the_environment() -> None:
    for rule in _rules():
        assert "$" not in "".join(rule["annotations"].values())
        assert "{{" in rule["annotations"]["summary"]


def test_the_value_is_that_of_the_query(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        "groups: [{name: g, rules: [{alert: A, expr: up, labels: {cost: '$5'},"
        " annotations: {summary: '{{ $value }} on {{ $labels.instance }}'}}]}]",
        encoding="utf-8",
    )
    (rule,) = yaml.safe_load(grafana_alerts(path))["groups"][0]["rules"]
    assert rule["annotations"]["summary"] == "{{ .Values.query.Value }} on {{ .Labels.instance }}"
    assert rule["labels"]["cost"] == "$$5"


def test_provisioning_agrees_with_the_alerts_and_the_boards() -> None:
    folder = ROOT / "dashboards" / "grafana" / "provisioning"
    sources = yaml.safe_load((folder / "datasources" / "specbench.yml").read_text("utf-8"))
    assert [s["uid"] for s in sources["datasources"]] == [DATASOURCE_UID]
    boards = yaml.safe_load((folder / "dashboards" / "specbench.yml").read_text("utf-8"))
    assert boards["providers"][0]["options"]["path"] == "/etc/specbench/boards"
