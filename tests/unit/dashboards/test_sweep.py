from __future__ import annotations

from specbench.dashboards.sweep import sweep

BOARD = sweep()
PANELS = {panel["title"]: panel for panel in BOARD["panels"]}


def test_the_figures_are_those_of_the_chosen_run_and_outlive_it() -> None:
    for title in ("Points", "Speedup by point", "Best speedup so far", "Blocks saved"):
        for target in PANELS[title]["targets"]:
            assert 'specbench_run_info{run_id="$run"}' in target["expr"]
            assert "last_over_time(" in target["expr"]
            assert target["instant"]


def test_the_heat_map_is_of_one_cell() -> None:
    expr = PANELS["Speedup by point"]["targets"][0]["expr"]
    assert 'workload="$workload",batch_size="$batch_size",temperature="$temperature"' in expr
    matrix = PANELS["Speedup by point"]["transformations"][0]
    assert matrix["id"] == "groupingToMatrix"
    assert matrix["options"]["columnField"] == "num_draft_tokens"


def test_every_column_of_the_table_is_named_and_has_a_unit() -> None:
    table = PANELS["Points"]
    names = table["transformations"][1]["options"]["renameByName"]
    assert list(names) == [f"Value #{t['refId']}" for t in table["targets"]]
    units = {o["matcher"]["options"] for o in table["fieldConfig"]["overrides"]}
    assert units == set(names.values())


def test_annotations_are_those_of_the_run() -> None:
    assert BOARD["annotations"]["list"][0]["target"]["tags"] == ["run:$run"]
