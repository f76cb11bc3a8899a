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


def test_missing_blocks_are_said_right_below(summary: Summary) -> None:
    blocks = content(dataclasses.replace(summary, unfinished=(31, 40)), PROVENANCE)
    assert isinstance(blocks[2], Text)
    assert blocks[2].text.startswith("Unfinished: 31 of 40 blocks")


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


def test_a_single_cell_has_no_table_of_cells(summary: Summary) -> None:
    cell = summary.headline.cell
    one = dataclasses.replace(summary, arms=summary.of_cell(cell), bests=summary.bests[:1])
    titles = [b.text for b in content(one, PROVENANCE) if isinstance(b, Heading)]
    assert "Best point per batch size" not in titles
    titles = [b.text for b in content(summary, PROVENANCE) if isinstance(b, Heading)]
    assert titles.index("Best point per batch size") < titles.index("Points")


def test_the_fastest_point_of_a_category_has_its_interval(blocks: list[Block]) -> None:
    """The highest of many figures is no finding by itself; the shown point is not said twice."""
    fastest = {row[0]: row[-1] for row in table(blocks, "By category").rows}
    assert fastest["all"] == "5/4/16"
    others = [text for text in fastest.values() if " " in text]
    assert others
    assert all(not text.startswith("5/4/16") for text in others)


def test_a_category_called_all_is_not_the_whole(summary: Summary) -> None:
    arm = summary.headline.arm
    assert arm is not None
    named = dataclasses.replace(arm.categories[0], category="all")
    best = dataclasses.replace(arm, categories=(named, *arm.categories[1:]))
    arms = tuple(best if one.key == arm.key else one for one in summary.arms)
    bests = (dataclasses.replace(summary.headline, arm=best), *summary.bests[1:])
    blocks = content(dataclasses.replace(summary, arms=arms, bests=bests), PROVENANCE)
    *_, whole = table(blocks, "By category").rows
    assert whole[-1] == "5/4/16"


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


def test_an_outside_server_that_names_no_draft_is_not_said_to_have_none(summary: Summary) -> None:
    served = dataclasses.replace(summary, backend="openai", draft="")
    texts = [b.text for b in content(served, PROVENANCE) if isinstance(b, Text)]
    assert any("draft not told, backend openai" in text for text in texts)
