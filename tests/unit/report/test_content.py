import dataclasses

import pytest

from specbench.grid import Grid
from specbench.metrics.summary import Summary
from specbench.report.content import content
from specbench.report.document import Block, Heading, Picture, Table, Text
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


def test_no_best_point_leaves_out_its_sections(summary: Summary) -> None:
    bests = tuple(dataclasses.replace(best, arm=None, tied=()) for best in summary.bests)
    blocks = content(dataclasses.replace(summary, bests=bests, ledger=()), PROVENANCE)
    titles = [b.text for b in blocks if isinstance(b, Heading)]
    assert not any(t.startswith(("By category", "The same run")) for t in titles)
    assert all(row[3] == "–" for row in table(blocks, "Best point").rows)


def test_only_given_pictures_are_shown(blocks: list[Block], summary: Summary) -> None:
    assert [b.file for b in blocks if isinstance(b, Picture)] == ["heatmap.png"]
    assert not any(isinstance(b, Picture) for b in content(summary, PROVENANCE))
