"""Read Prometheus rule files: which rules they hold, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from specbench.errors import ConfigError, OutputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A recording rule (``alert`` False) or an alert, with the group that it stands in."""

    group: str
    name: str
    expr: str
    alert: bool
    lasting: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def yaml() -> ModuleType:
    """PyYAML.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import yaml as found
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Rule files need PyYAML, which is not installed.",
            todo="Run pip install '.[dashboards]' in a clone of specbench.",
        ) from error
    module: ModuleType = found
    return module


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Every rule of the file, in order.

    Raises:
        OutputError: it cannot be read, or is no rule file.
    """
    parser = yaml()
    try:
        parsed = parser.safe_load(path.read_text(encoding="utf-8"))
        return tuple(_rules(parsed))
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror}.") from error
    except (parser.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise OutputError(
            f"{path} is not a file of Prometheus rules: {error!r}.",
            expected="groups, each with a name and rules that have record or alert, and expr.",
        ) from error


def _rules(parsed: Any) -> Iterator[Rule]:
    for group in parsed["groups"]:
        for rule in group["rules"]:
            yield Rule(
                group=group["name"],
                name=rule["alert"] if "alert" in rule else rule["record"],
                expr=str(rule["expr"]).strip(),
                alert="alert" in rule,
                lasting=rule.get("for", "0s"),
                labels=dict(rule.get("labels", {})),
                annotations=dict(rule.get("annotations", {})),
            )
