from __future__ import annotations

from specbench.dashboards.live import live_run

PANELS = {panel["title"]: panel for panel in live_run()["panels"]}


def test_what_a_team_watches_is_there() -> None:
    assert {
        "Accept length",
        "Survival by position",
        "Speedup over the baseline",
        "Emitted accept length against break-even",
        "Batch step time by part",
        "Output tokens per second",
        "TTFT",
        "TPOT",
        "Chunk gap",
        "Requests running and queued",
        "KV slots in use",
        "GPU utilisation",
        "Energy per token",
    } <= set(PANELS)


def test_rates_follow_the_scrape_interval() -> None:
    for panel in PANELS.values():
        for target in panel.get("targets", []):
            assert "[1m]" not in target["expr"]
            assert "[5m]" not in target["expr"]
    assert "$__rate_interval" in PANELS["Accept length"]["targets"][0]["expr"]


def test_lines_of_an_instance_and_point_can_be_told_apart() -> None:
    assert PANELS["TTFT"]["targets"][0]["legendFormat"] == "{{instance}} {{point}} p50"


def test_speculation_that_loses_is_marked() -> None:
    steps = PANELS["Speedup over the baseline"]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert steps == [{"color": "red", "value": None}, {"color": "transparent", "value": 1}]
