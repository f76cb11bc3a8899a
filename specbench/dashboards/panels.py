"""Panels of Grafana boards as plain JSON: every option is set, so that nothing depends on what a
version of Grafana takes by default. Shapes: @grafana/schema, checked by tools/check_dashboards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL expression and the legend of its series (``{{label}}`` is replaced)."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False


def timeseries(
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    unit: str,
    stacked: bool = False,
    line_at: float | None = None,
    least: float | None = 0,
    decimals: int | None = None,
) -> Json:
    """Lines over time; ``line_at`` draws a threshold, red below it."""
    custom: Json = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 40 if stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if line_at is None else "line+area"},
    }
    defaults = _defaults(unit, custom, least=least, decimals=decimals)
    defaults["thresholds"] = _steps(("transparent", None))
    if line_at is not None:
        defaults["thresholds"] = _steps(("red", None), ("transparent", line_at))
    options = {
        "legend": {
            "calcs": ["lastNotNull", "mean"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel("timeseries", title, about, queries, defaults, options)


def stat(
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    unit: str,
    steps: Sequence[tuple[str, float | None]] = (("text", None),),
    named: bool = False,
    decimals: int | None = None,
) -> Json:
    """Big numbers, one per series; ``named`` shows each series' legend above it."""
    defaults = _defaults(unit, {}, decimals=decimals, color={"mode": "thresholds"})
    defaults["thresholds"] = _steps(*steps)
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": _LAST,
        "showPercentChange": False,
        "textMode": "value_and_name" if named else "value",
        "wideLayout": True,
    }
    return _panel("stat", title, about, queries, defaults, options)


def bars(title: str, about: str, queries: Sequence[Query], *, unit: str, most: float) -> Json:
    """Horizontal bars, one per series, from 0 to ``most``."""
    defaults = _defaults(unit, {}, least=0, color={"mode": "continuous-BlPu"})
    defaults["max"] = most
    options = {
        "displayMode": "basic",
        "legend": {
            "calcs": [],
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": False,
        },
        "maxVizHeight": 300,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "left",
        "orientation": "horizontal",
        "reduceOptions": _LAST,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    return _panel("bargauge", title, about, queries, defaults, options)


def heatmap(title: str, about: str, query: Query, *, unit: str) -> Json:
    """Buckets of a histogram over time."""
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "exponent": 0.5,
            "fill": "dark-blue",
            "mode": "scheme",
            "reverse": False,
            "scale": "exponential",
            "scheme": "Blues",
            "steps": 64,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    panel = _panel("heatmap", title, about, [query], {"custom": custom}, options)
    panel["targets"][0]["format"] = "heatmap"
    return panel


def table(
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    transformations: Sequence[Json],
    units: Mapping[str, tuple[str, int]],
    coloured: Sequence[str] = (),
    sort_by: str = "",
) -> Json:
    """A table of instant queries.

    Args:
        title: of the panel.
        about: its description.
        queries: each with ``table`` set.
        transformations: how their results become one table.
        units: unit and decimals by column; a column of / / is a pattern.
        coloured: columns whose background shows the value.
        sort_by: a column, largest first.
    """
    custom: Json = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
    overrides = [
        _override(
            name,
            unit=unit,
            decimals=decimals,
            **(_SCALE if name in coloured else {}),
        )
        for name, (unit, decimals) in units.items()
    ]
    options = {
        "cellHeight": "sm",
        "frameIndex": 0,
        "showHeader": True,
        "sortBy": [{"displayName": sort_by, "desc": True}] if sort_by else [],
    }
    panel = _panel("table", title, about, queries, {"custom": custom}, options)
    panel["fieldConfig"]["overrides"] = overrides
    panel["transformations"] = list(transformations)
    return panel


_LAST: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_SCALE: Json = {
    "color": {"mode": "continuous-RdYlGr"},
    "custom.cellOptions": {"type": "color-background", "mode": "basic"},
}


def _override(name: str, **properties: Any) -> Json:
    pattern = name.startswith("/")
    return {
        "matcher": {"id": "byRegexp" if pattern else "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


def _steps(*steps: tuple[str, float | None]) -> Json:
    return {
        "mode": "absolute",
        "steps": [{"color": color, "value": value} for color, value in steps],
    }


def _defaults(
    unit: str,
    custom: Json,
    *,
    least: float | None = None,
    decimals: int | None = None,
    color: Json | None = None,
) -> Json:
    found: Json = {"unit": unit, "custom": custom, "noValue": "–"}
    found["color"] = color or {"mode": "palette-classic-by-name"}
    if least is not None:
        found["min"] = least
    if decimals is not None:
        found["decimals"] = decimals
    return found


def _panel(
    kind: str,
    title: str,
    about: str,
    queries: Sequence[Query],
    defaults: Json,
    options: Json,
) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [_target(chr(ord("A") + i), query) for i, query in enumerate(queries)],
    }


def _target(ref: str, query: Query) -> Json:
    return {
        "refId": ref,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": "table" if query.table else "time_series",
        "instant": query.instant or query.table,
        "range": not (query.instant or query.table),
        "legendFormat": query.legend or "__auto",
    }
