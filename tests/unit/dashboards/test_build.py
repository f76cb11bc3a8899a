from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.dashboards.build import boards, files, write
from specbench.errors import OutputError

SHIPPED = Path(__file__).parents[3] / "dashboards"


@pytest.mark.parametrize("name", sorted(files(SHIPPED)))
def test_the_committed_file_is_what_is_built(name: str) -> None:
    text = (SHIPPED / name).read_text(encoding="utf-8")
    assert text == files(SHIPPED)[name], "Run: specbench dashboards build"


def test_no_other_board_is_committed() -> None:
    assert {path.name for path in SHIPPED.glob("*.json")} == set(boards())


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for board in boards().values():
        for panel in board["panels"]:
            if panel["type"] == "row":
                continue
            where = f"{board['title']}: {panel['title']}"
            assert len(panel["description"]) > 4, where
            field = panel["fieldConfig"]
            units = [p for o in field["overrides"] for p in o["properties"] if p["id"] == "unit"]
            axis = panel["options"].get("yAxis", {})
            assert units or {"unit"} & {*field["defaults"], *axis}, where


def test_every_variable_that_is_used_is_declared() -> None:
    given = {"__rate_interval", "__range", "__all"}
    for board in boards().values():
        known = given | {variable["name"] for variable in board["templating"]["list"]}
        for word in json.dumps(board).replace("${datasource}", "").split("$")[1:]:
            name = word[: next(i for i, c in enumerate(word) if not (c.isalnum() or c == "_"))]
            assert name in known or not name, f"{board['title']}: ${name}"


def test_uids_are_distinct() -> None:
    assert len({board["uid"] for board in boards().values()}) == 3


def test_without_rules_there_are_no_alerts(tmp_path: Path) -> None:
    written = write(tmp_path / "new")
    assert [path.name for path in written] == ["live.json", "sweep.json", "compare.json"]
    assert json.loads(written[0].read_text(encoding="utf-8"))["uid"] == "specbench-live"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(OutputError, match="cannot be written"):
        write(tmp_path / "file")
