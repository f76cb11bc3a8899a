"""The shipped workloads are what the tool makes, and balanced."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from tools import make_workloads
from tools.demo_pair.example import CATEGORIES

SHIPPED = Path(__file__).resolve().parents[3] / "workloads"


def _rows(name: str) -> list[dict[str, object]]:
    lines = (SHIPPED / name / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["default", "multiturn"])
def test_the_tool_reproduces_the_files(name: str, tmp_path: Path) -> None:
    make_workloads.make(tmp_path, SHIPPED / "documents.jsonl")
    for file in ("prompts.jsonl", "workload.json"):
        assert (tmp_path / name / file).read_bytes() == (SHIPPED / name / file).read_bytes()


@pytest.mark.parametrize("name", ["default", "multiturn"])
def test_the_description_fits_the_prompts(name: str) -> None:
    about = json.loads((SHIPPED / name / "workload.json").read_text(encoding="utf-8"))
    data = (SHIPPED / name / "prompts.jsonl").read_bytes()
    assert about["sha256"] == hashlib.sha256(data).hexdigest()
    assert about["prompts"] == len(_rows(name))
    assert tuple(about["categories"]) == CATEGORIES
    assert (SHIPPED / name / "README.md").exists()


def test_any_beginning_of_the_default_workload_is_balanced() -> None:
    rows = _rows("default")
    assert Counter(row["category"] for row in rows) == dict.fromkeys(CATEGORIES, 20)
    for count in (5, 25, 50):
        assert set(Counter(row["category"] for row in rows[:count]).values()) == {count // 5}


def test_ids_and_first_turns_are_unique() -> None:
    rows = _rows("default")
    assert len({row["id"] for row in rows}) == len(rows)
    assert len({json.dumps(row["turns"]) for row in rows}) == len(rows)


def test_conversations_have_three_or_four_turns() -> None:
    rows = _rows("multiturn")
    assert Counter(row["category"] for row in rows) == dict.fromkeys(CATEGORIES, 4)
    for row in rows:
        turns = row["turns"]
        assert isinstance(turns, list)
        assert len(turns) in (3, 4)


def test_every_prompt_is_held_out_and_names_its_source() -> None:
    for name in ("default", "multiturn"):
        for row in _rows(name):
            assert row["held_out"] is True
            assert str(row["source"]).startswith(("template: ", "document: "))


def test_a_larger_default_workload_keeps_the_shares(tmp_path: Path) -> None:
    given = ["--out", str(tmp_path), "--documents", str(SHIPPED / "documents.jsonl")]
    assert make_workloads.main([*given, "--per-category", "120"]) == 0
    folder = tmp_path / "default-600"
    about = json.loads((folder / "workload.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text("utf-8").splitlines()]
    assert (about["name"], about["prompts"]) == ("default-600", 600)
    assert about["source"].endswith(" --per-category 120")
    assert (
        len({json.dumps(row["turns"]) for row in rows}) == len({row["id"] for row in rows}) == 600
    )
    assert _shares(rows) == {key: 6 * count for key, count in _shares(_rows("default")).items()}
    assert not (tmp_path / "multiturn").exists()


def _shares(rows: list[dict[str, object]]) -> Counter[tuple[str, bool]]:
    """Prompts by category and by whether they are of documents."""
    return Counter((str(r["category"]), str(r["source"]).startswith("document: ")) for r in rows)


@pytest.mark.parametrize("count", ["0", "10", "30", "140", "-20"])
def test_a_count_that_cannot_keep_the_shares_is_refused(
    count: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--out", str(tmp_path / "out"), "--documents", str(SHIPPED / "documents.jsonl")]
    assert make_workloads.main([*given, "--per-category", count]) == 2
    assert f"--per-category {count}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_excerpts_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make_workloads.main(["--out", str(tmp_path)]) == 2
    assert "documents.jsonl" in capsys.readouterr().err
