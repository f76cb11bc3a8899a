import dataclasses

import pytest

from specbench.estimate import Caveat, Severity
from specbench.grid import Grid
from specbench.metrics.summary import Summary
from specbench.report.content import content
from specbench.report.document import Block, Code, Heading, Items, Picture, Table, Text
from tests.unit.report.sample_runs import CATEGORIES, PROVENANCE


def section(blocks: list[Block], title: str) -> list[Block]:
    start = next(
        i for i, b in enumerate(blocks) if isinstance(b, Heading) and b.text.startswith(title)
    )
    end = next(
        (i for i, b in enumerate(blocks) if i > start and isinstance(b, Heading) and b.level <= 2),
        len(blocks),
    )
    return blocks[start + 1 : end]


@pytest.fixture(scope="module")
def blocks(summary: Summary, grid: Grid) -> list[Block]:
    return content(summary, PROVENANCE, dropped=grid.dropped, pictures=("heatmap.png",))


def table(blocks: list[Block], title: str) -> Table:
    return next(b for b in section(blocks, title) if isinstance(b, Table))


def test_verdict_comes_first(blocks: list[Block]) -> None:
    assert isinstance(blocks[0], Heading)
    assert isinstance(blocks[1], Text)
    assert blocks[1].strong
    assert blocks[1].text.startswith("Best at batch size 1")


def test_a_table_of_points_per_cell(blocks: list[Block]) -> None:
    tables = [b for b in section(blocks, "Points") if isinstance(b, Table)]
    assert [len(t.rows) for t in tables] == [10, 10]
    assert [row[0] for t in tables for row in t.rows if "(best)" in row[0]] == [
        "5/4/16 (best)",
        "5/4/8 (best)",
    ]


def test_rows_are_as_wide_as_their_header(blocks: list[Block]) -> None:
    for block in blocks:
        if isinstance(block, Table):
            assert all(len(row) == len(block.columns) for row in block.rows)


def test_best_point_per_batch_size(blocks: list[Block]) -> None:
    assert [row[2:4] for row in table(blocks, "Best point").rows] == [
        ("1", "5/4/16"),
        ("4", "5/4/8"),
    ]


def test_categories_of_the_best_point(blocks: list[Block]) -> None:
    assert [row[0] for row in table(blocks, "By category").rows] == [*sorted(CATEGORIES), "all"]


def test_dropped_points_have_reasons(blocks: list[Block], grid: Grid) -> None:
    (items,) = section(blocks, "Points that did not run")
    assert isinstance(items, Items)
    assert [label for label, _ in items.items] == ["1/4/8", "1/4/16"]
    assert all("4 nodes" in text for _, text in items.items)


def test_points_that_the_run_did_not_reach(summary: Summary) -> None:
    cut = dataclasses.replace(summary, not_measured=("k7",))
    (items,) = section(content(cut, PROVENANCE), "Points that did not run")
    assert isinstance(items, Items)
    assert items.items[0][0] == "k7"


def test_caveats_are_grouped_by_code(summary: Summary) -> None:
    note = Caveat(code="clocks", severity=Severity.NOTE, text="clocks are not locked")
    bad = Caveat(code="looping", severity=Severity.INVALID, text="30% repeat")
    arms = [dataclasses.replace(arm, caveats=(note,)) for arm in summary.arms]
    arms[2] = dataclasses.replace(arms[2], caveats=(note, bad))
    (items,) = section(
        content(dataclasses.replace(summary, arms=tuple(arms)), PROVENANCE), "Caveats"
    )
    assert isinstance(items, Items)
    assert items.items == (
        ("clocks", "note, every point: clocks are not locked."),
        ("looping", "invalid, 2/1/3 at batch size 1: 30% repeat."),
    )


def test_many_places_are_cut_short(summary: Summary) -> None:
    note = Caveat(code="clocks", severity=Severity.NOTE, text="x")
    arms = tuple(
        dataclasses.replace(arm, caveats=(note,) if i else ()) for i, arm in enumerate(summary.arms)
    )
    (items,) = section(content(dataclasses.replace(summary, arms=arms), PROVENANCE), "Caveats")
    assert isinstance(items, Items)
    assert "and 13 more; on 1/1/2 at batch size 1: x." in items.items[0][1]


def test_no_best_point_leaves_out_its_sections(summary: Summary) -> None:
    bests = tuple(dataclasses.replace(best, arm=None, tied=()) for best in summary.bests)
    blocks = content(dataclasses.replace(summary, bests=bests, ledger=()), PROVENANCE)
    titles = [b.text for b in blocks if isinstance(b, Heading)]
    assert not any(t.startswith(("By category", "The same run")) for t in titles)
    assert all(row[3] == "–" for row in table(blocks, "Best point").rows)


def test_reproduction_has_command_and_hashes(blocks: list[Block]) -> None:
    found = section(blocks, "How to reproduce")
    assert found[0] == Code(text="specbench sweep --num-steps 0..5 --topk 1,4")
    facts = table(blocks, "How to reproduce").rows
    assert ("inputs", "draft_sha256", "2222bbbb") in facts


def test_only_given_pictures_are_shown(blocks: list[Block], summary: Summary) -> None:
    assert [b.file for b in blocks if isinstance(b, Picture)] == ["heatmap.png"]
    assert not any(isinstance(b, Picture) for b in content(summary, PROVENANCE))
