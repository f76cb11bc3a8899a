from __future__ import annotations

import copy

import pytest

from specbench.dashboards.build import boards
from specbench.dashboards.grafana import Grafana
from specbench.dashboards.push import DATASOURCE_NAME, push
from specbench.errors import ConfigError, OutputError
from tests.unit.dashboards.stand_in import StandIn

PROMETHEUS = "http://prometheus:9090"


def _push(
    stand_in: StandIn, *, overwrite: bool = False, prometheus: str | None = None
) -> list[str]:
    said: list[str] = []
    push(
        Grafana(stand_in.url, "secret"),
        boards(),
        prometheus=prometheus,
        overwrite=overwrite,
        say=said.append,
    )
    return said


def test_the_first_push_makes_everything(stand_in: StandIn) -> None:
    _push(stand_in, prometheus=PROMETHEUS)
    assert stand_in.posted("/api/folders") == [{"title": "specbench", "uid": "specbench"}]
    (source,) = stand_in.posted("/api/datasources")
    assert (source["type"], source["url"], source["uid"]) == (
        "prometheus",
        PROMETHEUS,
        "specbench-prometheus",
    )
    pushed = stand_in.posted("/api/dashboards/db")
    assert [body["dashboard"] for body in pushed] == [
        {**board, "id": None} for board in boards().values()
    ]
    assert {(body["folderUid"], body["overwrite"]) for body in pushed} == {("specbench", False)}
    assert set(stand_in.tokens) == {"Bearer secret"}


def test_the_second_push_changes_nothing(stand_in: StandIn) -> None:
    _push(stand_in, prometheus=PROMETHEUS)
    stand_in.sent.clear()
    said = _push(stand_in, prometheus=PROMETHEUS)
    assert {method for method, _, _ in stand_in.sent} == {"GET"}
    assert all(line.endswith("there already") for line in said)
    assert len(said) == 5


def test_without_prometheus_data_sources_are_left_alone(stand_in: StandIn) -> None:
    _push(stand_in)
    assert not [path for _, path, _ in stand_in.sent if "datasource" in path]


def test_an_edited_board_is_replaced_on_request_only(stand_in: StandIn) -> None:
    edited = copy.deepcopy(boards()["sweep.json"])
    edited["revision"] += 1
    stand_in.boards[edited["uid"]] = {"dashboard": edited}
    with pytest.raises(OutputError, match=r"specbench-sweep.*--overwrite"):
        _push(stand_in)
    assert "specbench-compare" not in stand_in.boards
    said = _push(stand_in, overwrite=True)
    assert "board specbench-sweep: replaced" in said
    assert stand_in.boards["specbench-sweep"]["dashboard"]["revision"] == edited["revision"] - 1


def test_a_board_that_appeared_meanwhile(stand_in: StandIn) -> None:
    stand_in.answers = {
        ("POST", "/api/dashboards/db"): (412, {"status": "name-exists", "message": "It exists"})
    }
    with pytest.raises(OutputError, match=r"412 \(pushing board specbench-live\)\. It exists\."):
        _push(stand_in)


def test_another_address_of_the_data_source(stand_in: StandIn) -> None:
    stand_in.datasources[DATASOURCE_NAME] = {"id": 7, "url": "http://old:9090", "jsonData": {}}
    with pytest.raises(OutputError, match="http://old:9090"):
        _push(stand_in, prometheus=PROMETHEUS)
    _push(stand_in, prometheus=PROMETHEUS, overwrite=True)
    (changed,) = [s for s in stand_in.sent if s[0] == "PUT"]
    assert changed[1] == "/api/datasources/7"
    assert (changed[2]["url"], changed[2]["jsonData"]) == (PROMETHEUS, {})


def test_a_token_that_may_not_make_folders(stand_in: StandIn) -> None:
    stand_in.answers = {("POST", "/api/folders"): (403, {"message": "Access denied"})}
    with pytest.raises(ConfigError, match="making the folder"):
        _push(stand_in)
    assert stand_in.boards == {}
