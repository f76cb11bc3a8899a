"""A board: panels in rows, variables, annotations, and a revision that follows the content."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from specbench.collectors.catalogue import Series
from specbench.dashboards.panels import DATASOURCE, WIDTH, Json

SCHEMA_VERSION = 42
TAG = "specbench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels side by side, all of one height, each with its width of 24; a heading above them."""

    panels: Sequence[tuple[Json, int]]
    height: int = 8
    heading: str = ""


def board(
    uid: str,
    title: str,
    about: str,
    rows: Sequence[Row],
    variables: Sequence[Json],
    *,
    refresh: str,
    since: str,
    annotation_tags: Sequence[str] = (TAG,),
) -> Json:
    """The JSON of a board. ``revision`` is a checksum of all the rest."""
    found: Json = {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": refresh,
        "time": {"from": since, "to": "now"},
        "timezone": "browser",
        "annotations": {"list": [_annotations(annotation_tags)]},
        "links": [_other_boards()],
        "templating": {"list": [_datasource(), *variables]},
        "panels": _placed(rows),
    }
    found["revision"] = zlib.crc32(json.dumps(found, sort_keys=True).encode())
    return found


def from_series(
    name: str, label: str, series: Series, *, text: str, several: bool, within: str = ""
) -> Json:
    """A variable with the values that ``label`` of ``series`` has in the shown time."""
    query = f"label_values({series.name}{within}, {label})"
    found = _asked(name, text, query)
    if several:
        found |= {"multi": True, "includeAll": True, "allValue": ".*", "sort": 7}
        found["current"] = {"text": ["All"], "value": ["$__all"]}
    return found


def from_expr(name: str, label: str, expr: str, *, text: str) -> Json:
    """A variable with the values that ``label`` has in the result of ``expr``."""
    found = _asked(name, text, f"query_result(group by ({label}) ({expr}))")
    return found | {"regex": f'/{label}="([^"]*)"/', "sort": 7}


def _asked(name: str, text: str, query: str) -> Json:
    """A variable of one value that Prometheus is asked for; newest names first."""
    return {
        "type": "query",
        "name": name,
        "label": text,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "regex": "",
        "sort": 8,
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def choice(name: str, values: Sequence[str], *, chosen: str, text: str) -> Json:
    """A variable with fixed values, ``chosen`` at first."""
    options = [{"text": v, "value": v, "selected": v == chosen} for v in values]
    return {
        "type": "custom",
        "name": name,
        "label": text,
        "query": ",".join(values),
        "options": options,
        "current": next(option for option in options if option["selected"]),
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def typed(name: str, value: str, *, text: str) -> Json:
    """A variable that the reader types in."""
    option = {"text": value, "value": value, "selected": True}
    return {
        "type": "textbox",
        "name": name,
        "label": text,
        "query": value,
        "options": [option],
        "current": option,
        "hide": 0,
    }


def _datasource() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def _annotations(tags: Sequence[str]) -> Json:
    return {
        "name": "Runs and points",
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "iconColor": "blue",
        "target": {"type": "tags", "tags": list(tags), "limit": 500, "matchAny": len(tags) > 1},
    }


def _other_boards() -> Json:
    return {
        "type": "dashboards",
        "title": "specbench",
        "tags": [TAG],
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "tooltip": "",
    }


def _placed(rows: Sequence[Row]) -> list[Json]:
    """Ids in reading order and a place in the grid for every panel."""
    panels: list[Json] = []
    top = 0
    for row in rows:
        if row.heading:
            place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
            heading = {"type": "row", "title": row.heading, "collapsed": False, "panels": []}
            panels.append({"id": len(panels) + 1, "gridPos": place, **heading})
            top += 1
        left = 0
        for panel, width in row.panels:
            place = {"h": row.height, "w": width, "x": left, "y": top}
            panels.append({"id": len(panels) + 1, "gridPos": place, **panel})
            left += width
        top += row.height
    return panels
