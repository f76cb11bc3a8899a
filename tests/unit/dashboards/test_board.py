from __future__ import annotations

from typing import Any

from specbench.collectors import catalogue as cat
from specbench.dashboards.board import Row, board, choice, from_expr, from_series, typed
from specbench.dashboards.panels import Query, timeseries

PANEL = timeseries("t", "a", [Query(expr="up")], unit="s")


def _board(*rows: Row, **changes: Any) -> dict[str, Any]:
    given = {"refresh": "10s", "since": "now-1h", **changes}
    return board("uid", "title", "about", rows, [], **given)


def test_panels_stand_in_rows_without_overlap() -> None:
    made = _board(
        Row(panels=[(PANEL, 8), (PANEL, 16)], height=4),
        Row(panels=[(PANEL, 24)], heading="More", height=6),
    )
    places = [(p["type"], *p["gridPos"].values()) for p in made["panels"]]
    assert places == [
        ("timeseries", 4, 8, 0, 0),
        ("timeseries", 4, 16, 8, 0),
        ("row", 1, 24, 0, 4),
        ("timeseries", 6, 24, 0, 5),
    ]
    assert [p["id"] for p in made["panels"]] == [1, 2, 3, 4]


def test_the_revision_follows_the_content() -> None:
    one = _board(Row(panels=[(PANEL, 24)]))
    assert one["revision"] == _board(Row(panels=[(PANEL, 24)]))["revision"]
    assert one["revision"] != _board(Row(panels=[(PANEL, 24)]), refresh="20s")["revision"]


def test_the_source_of_data_is_the_first_variable() -> None:
    assert _board()["templating"]["list"][0]["type"] == "datasource"


def test_variables() -> None:
    run = from_series("run", "run_id", cat.RUN_INFO, text="Run", several=False)
    assert run["query"]["query"] == "label_values(specbench_run_info, run_id)"
    assert "allValue" not in run
    assert from_series("i", "instance", cat.RUN_INFO, text="I", several=True)["allValue"] == ".*"
    size = from_expr("size", "batch_size", "up", text="Size")
    assert size["query"]["query"] == "query_result(group by (batch_size) (up))"
    assert size["regex"] == '/batch_size="([^"]*)"/'
    window = choice("window", ("1m", "5m"), chosen="5m", text="Window")
    assert window["current"]["value"] == "5m"
    assert typed("shift", "1ms", text="Shift")["query"] == "1ms"


def test_annotations_match_any_of_several_tags() -> None:
    target = _board(annotation_tags=("run:a", "run:b"))["annotations"]["list"][0]["target"]
    assert (target["tags"], target["matchAny"]) == (["run:a", "run:b"], True)
