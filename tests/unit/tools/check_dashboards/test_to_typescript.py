from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.check_dashboards.to_typescript import main, module

BOARD = {
    "uid": "a-b",
    "panels": [
        {"id": 1, "type": "row", "title": "R"},
        {
            "id": 2,
            "type": "stat",
            "title": "τ, best",
            "options": {"o": 1},
            "fieldConfig": {"defaults": {"custom": {}}},
        },
    ],
}


def test_each_part_is_held_against_its_type() -> None:
    lines = module([BOARD]).splitlines()[1:]
    assert [line.split(" satisfies ")[1] for line in lines] == [
        "Board;",
        "AnyRow;",
        "AnyPanel;",
        "Options['stat'];",
        "Custom['stat'];",
    ]
    assert lines[3].startswith('export const a_b_2_best_options = {"o": 1} ')


def test_a_kind_without_types_is_an_error() -> None:
    with pytest.raises(SystemExit, match="geomap"):
        module([{"uid": "a", "panels": [{"id": 1, "type": "geomap", "title": "t"}]}])


def test_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(BOARD), encoding="utf-8")
    assert main([str(tmp_path), str(tmp_path / "out.ts")]) == 0
    assert (tmp_path / "out.ts").read_text("utf-8") == module([BOARD])
    with pytest.raises(SystemExit, match="no boards"):
        main([str(tmp_path / "none"), str(tmp_path / "out.ts")])
