"""Grafana's own alerts from the alerts of rules.yml, so that the two never differ.

Prometheus fires an alert for every series that its expression returns, whatever the value.
Grafana wants a condition: the query, an expression that is 1 for any value, a threshold over 0.
No data is the normal state of such a query, hence OK. Format: Grafana's file provisioning of
alerting resources, apiVersion 1.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from specbench.dashboards.panels import Json
from specbench.dashboards.rule_files import Rule, read_rules, yaml

DATASOURCE_UID = "specbench-prometheus"
FOLDER = "specbench"
INTERVAL = "1m"
_EXPRESSION: Json = {"type": "__expr__", "uid": "__expr__"}


def grafana_alerts(rules: Path) -> str:
    """The provisioning file, as YAML.

    Raises:
        OutputError: ``rules`` is not a rule file.
        ConfigError: PyYAML is not installed.
    """
    alerts = [rule for rule in read_rules(rules) if rule.alert]
    groups = [
        {
            "orgId": 1,
            "name": group,
            "folder": FOLDER,
            "interval": INTERVAL,
            "rules": [_alert(rule) for rule in alerts if rule.group == group],
        }
        for group in dict.fromkeys(rule.group for rule in alerts)
    ]
    text: str = yaml().safe_dump(
        {"apiVersion": 1, "groups": groups}, sort_keys=False, allow_unicode=True, width=100
    )
    return f"# Made by `specbench dashboards build` from {rules.name}; edit that file.\n{text}"


def _alert(rule: Rule) -> Json:
    return {
        "uid": f"specbench-{zlib.crc32(rule.name.encode()):08x}",
        "title": rule.name,
        "condition": "fires",
        "for": rule.lasting,
        "noDataState": "OK",
        "execErrState": "Error",
        "labels": {key: text.replace("$", "$$") for key, text in rule.labels.items()},
        "annotations": {key: _grafana_text(text) for key, text in rule.annotations.items()},
        "data": [
            _step("query", DATASOURCE_UID, {"expr": rule.expr, "instant": True, "range": False}),
            _step(
                "found",
                "__expr__",
                {
                    "datasource": dict(_EXPRESSION),
                    "type": "math",
                    "expression": "is_number($query) || is_nan($query) || is_inf($query)",
                },
            ),
            _step(
                "fires",
                "__expr__",
                {
                    "datasource": dict(_EXPRESSION),
                    "type": "threshold",
                    "expression": "found",
                    "conditions": [{"evaluator": {"type": "gt", "params": [0]}}],
                },
            ),
        ],
    }


def _step(ref: str, uid: str, model: Json) -> Json:
    return {
        "refId": ref,
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": uid,
        "model": {"refId": ref, **model},
    }


def _grafana_text(text: str) -> str:
    """Prometheus' variables as Grafana's fields.

    Fields, since Grafana may take a ``$`` in a provisioned file for an environment variable; the
    value is that of the query, not of the condition.
    """
    return text.replace("$labels", ".Labels").replace("$value", ".Values.query.Value")
