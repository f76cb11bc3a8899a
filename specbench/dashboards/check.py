"""Every metric and label that boards and rules name, held against the catalogue."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from specbench.collectors.catalogue import CATALOGUE, Kind
from specbench.dashboards.names import Names, names_in
from specbench.dashboards.panels import Json
from specbench.dashboards.promql import TARGET
from specbench.dashboards.rule_files import Rule, read_rules
from specbench.errors import OutputError

ALERT_LABELS = ("alertname", "alertstate")
_VALUES_OF = re.compile(r"label_values\((?P<of>.*),\s*(?P<label>\w+)\)")
_RESULT_OF = re.compile(r"query_result\((?P<of>.*)\)")
_LEGEND = re.compile(r"{{\s*(\w+)\s*}}")
Known = Mapping[str, frozenset[str]]


def known_names(rules: Iterable[Rule] = ()) -> Known:
    """Every name that PromQL can use, with its labels; recording rules carry any known label."""
    known = {"up": frozenset(TARGET)}
    for series in CATALOGUE.values():
        labels = frozenset((*series.labels, *TARGET))
        if series.kind is Kind.HISTOGRAM:
            known[f"{series.name}_bucket"] = labels | {"le"}
            known[f"{series.name}_sum"] = known[f"{series.name}_count"] = labels
        else:
            known[series.name] = labels
    every = frozenset[str]().union(*known.values())
    known["ALERTS"] = every | set(ALERT_LABELS)
    return known | {rule.name: every | set(rule.labels) for rule in rules if not rule.alert}


def check_expr(expr: str, known: Known) -> Iterator[str]:
    """What ``expr`` names that does not exist, one sentence each."""
    names = names_in(expr)
    for metric, matched in names.metrics:
        if metric not in known:
            yield f"{metric} is not a series.{_meant(metric, known)}"
            continue
        for label in matched:
            if label not in known[metric]:
                yield f"{metric} has no label {label}.{_meant(label, known[metric])}"
    present = _labels(names, known)
    for label in names.labels:
        if present is not None and label not in present:
            yield f"no series of the expression has the label {label}.{_meant(label, present)}"


def check_board(board: Json, known: Known) -> Iterator[str]:
    """What a board names that does not exist; each sentence names the board and the panel."""
    name = board.get("title", "a board without a title")
    for variable in board.get("templating", {}).get("list", []):
        if variable.get("type") == "query":
            for found in _check_variable(variable, known):
                yield f"{name}: variable {variable['name']}: {found}"
    for panel in board.get("panels", []):
        for target in panel.get("targets", []):
            where = f"{name}: {panel.get('title')}: query {target.get('refId')}"
            for found in _check_target(target, known):
                yield f"{where}: {found}"


def check_rules(path: Path, rules: Sequence[Rule], known: Known) -> Iterator[str]:
    """What the rules of one file name that does not exist."""
    for rule in rules:
        for found in check_expr(rule.expr, known):
            yield f"{path.name}: {rule.group}: {rule.name}: {found}"


def check_paths(paths: Sequence[Path]) -> tuple[str, ...]:
    """Check files: boards (.json) and rules (.yml with groups of rules); folders are searched.

    Raises:
        OutputError: a path does not exist, or a file is neither.
    """
    boards, rule_files = _sorted(paths)
    rules = {path: read_rules(path) for path in rule_files}
    known = known_names(rule for of in rules.values() for rule in of)
    found = [line for path in boards for line in check_board(_read_board(path), known)]
    return (*found, *(s for path, of in rules.items() for s in check_rules(path, of, known)))


def _sorted(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    boards: list[Path] = []
    rules: list[Path] = []
    for path in paths:
        if path.is_dir():
            boards += sorted(path.glob("*.json"))
            rules += sorted(path.glob("*rules.yml"))
        elif path.is_file() and path.suffix in (".yml", ".yaml"):
            rules.append(path)
        elif path.is_file():
            boards.append(path)
        else:
            raise OutputError(f"{path} does not exist.", expected="A board, a rule file, a folder.")
    if not boards and not rules:
        raise OutputError(
            f"There is nothing to check in {', '.join(map(str, paths))}.",
            expected="Boards (*.json) or rules (*rules.yml).",
        )
    return boards, rules


def _read_board(path: Path) -> Json:
    try:
        board = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(board, dict) or "panels" not in board:
        raise OutputError(f"{path} is not a board.", expected="An object with panels.")
    return board


def _check_variable(variable: Json, known: Known) -> Iterator[str]:
    query = variable["query"]
    text = query["query"] if isinstance(query, dict) else str(query)
    if match := _RESULT_OF.fullmatch(text):
        label = variable["regex"].split("=")[0].strip("/")
    elif match := _VALUES_OF.fullmatch(text):
        label = match["label"]
    else:
        yield f"{text!r} is neither label_values(series, label) nor query_result(expression)."
        return
    yield from check_expr(match["of"], known)
    present = _labels(names_in(match["of"]), known)
    if present is not None and label not in present:
        yield f"{match['of']} has no label {label}.{_meant(label, present)}"


def _check_target(target: Json, known: Known) -> Iterator[str]:
    yield from check_expr(target["expr"], known)
    present = _labels(names_in(target["expr"]), known)
    for label in _LEGEND.findall(target.get("legendFormat", "")):
        if present is not None and label not in present:
            yield f"the legend's label {label} is in no series of the expression."


def _labels(names: Names, known: Known) -> frozenset[str] | None:
    """Labels that the expression's series have or that it makes; None where one is unknown."""
    if any(metric not in known for metric, _ in names.metrics):
        return None
    return frozenset(names.made).union(*(known[metric] for metric, _ in names.metrics))


def _meant(word: str, among: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, among, n=1)
    return f" Did you mean {near[0]}?" if near else ""
