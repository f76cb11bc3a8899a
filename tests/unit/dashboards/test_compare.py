from __future__ import annotations

from specbench.dashboards.compare import compare

BOARD = compare()
LINES = [panel for panel in BOARD["panels"] if panel["type"] == "timeseries"]


def test_each_panel_holds_both_runs_and_shifts_the_second() -> None:
    assert len(LINES) == 6
    for panel in LINES:
        first, second = (target["expr"] for target in panel["targets"])
        assert 'run_id="$run_a"' in first
        assert "offset" not in first
        assert 'specbench_run_info{run_id="$run_b"} offset $shift' in second
        assert second.replace(" offset $shift", "").replace("$run_b", "$run_a") == first


def test_points_are_joined_by_what_they_are() -> None:
    (table,) = (panel for panel in BOARD["panels"] if panel["type"] == "table")
    for target in table["targets"]:
        assert target["expr"].startswith(
            "max by (workload, batch_size, temperature, num_steps, topk, num_draft_tokens, arm)"
        )
    names = list(table["transformations"][1]["options"]["renameByName"].values())
    assert names[:4] == ["Verify steps A", "Verify steps B", "Accept length A", "Accept length B"]


def test_annotations_of_both_runs_are_shown() -> None:
    target = BOARD["annotations"]["list"][0]["target"]
    assert target["tags"] == ["run:$run_a", "run:$run_b"]
    assert target["matchAny"]
