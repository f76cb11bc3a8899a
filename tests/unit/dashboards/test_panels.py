from __future__ import annotations

from specbench.dashboards.panels import Query, bars, heatmap, stat, table, timeseries

ONE = [Query(expr="up", legend="{{job}}")]


def test_queries_are_lettered_and_of_the_chosen_source() -> None:
    panel = timeseries("t", "a", [*ONE, Query(expr="down")], unit="s")
    assert [t["refId"] for t in panel["targets"]] == ["A", "B"]
    assert [t["legendFormat"] for t in panel["targets"]] == ["{{job}}", "__auto"]
    assert {t["datasource"]["uid"] for t in panel["targets"]} == {"${datasource}"}


def test_a_query_is_either_instant_or_over_a_range() -> None:
    ranged, now, rows = (
        timeseries("t", "a", [query], unit="s")["targets"][0]
        for query in (
            Query(expr="up"),
            Query(expr="up", instant=True),
            Query(expr="up", table=True),
        )
    )
    assert (ranged["instant"], ranged["range"], ranged["format"]) == (False, True, "time_series")
    assert (now["instant"], now["range"], now["format"]) == (True, False, "time_series")
    assert (rows["instant"], rows["range"], rows["format"]) == (True, False, "table")


def test_a_line_marks_what_is_below_it() -> None:
    plain = timeseries("t", "a", ONE, unit="s")["fieldConfig"]["defaults"]
    marked = timeseries("t", "a", ONE, unit="s", line_at=1)["fieldConfig"]["defaults"]
    assert plain["custom"]["thresholdsStyle"]["mode"] == "off"
    assert marked["custom"]["thresholdsStyle"]["mode"] == "line+area"
    assert [step["value"] for step in marked["thresholds"]["steps"]] == [None, 1]


def test_columns_of_a_table_have_their_own_units() -> None:
    panel = table(
        "t",
        "a",
        ONE,
        transformations=[{"id": "merge", "options": {}}],
        units={"Step time": ("s", 3), "/^[0-9]+$/": ("none", 1)},
        coloured=["/^[0-9]+$/"],
        sort_by="Step time",
    )
    by_name, by_pattern = panel["fieldConfig"]["overrides"]
    assert by_name["matcher"] == {"id": "byName", "options": "Step time"}
    assert by_pattern["matcher"]["id"] == "byRegexp"
    assert {p["id"] for p in by_name["properties"]} == {"unit", "decimals"}
    assert {"color", "custom.cellOptions"} < {p["id"] for p in by_pattern["properties"]}
    assert panel["options"]["sortBy"] == [{"displayName": "Step time", "desc": True}]


def test_kinds() -> None:
    assert heatmap("t", "a", ONE[0], unit="none")["targets"][0]["format"] == "heatmap"
    assert bars("t", "a", ONE, unit="none", most=2)["fieldConfig"]["defaults"]["max"] == 2
    assert stat("t", "a", ONE, unit="none", named=True)["options"]["textMode"] == "value_and_name"
