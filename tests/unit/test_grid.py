"""The grid: what runs, what is dropped, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.grid import expand, parse_values


def test_the_example_of_the_semantics_page_gives_baseline_chains_and_legal_trees() -> None:
    grid = expand(range(6), (1, 2, 4), (4, 8, 16))

    ids = [p.point_id for p in grid.points]
    assert ids[0] == "base"
    assert [i for i in ids if "b" not in i] == ["k1", "k2", "k3", "k4", "k5"]
    assert "k1b4n4" in ids
    assert "k2b2n4" in ids
    assert "k3b2n8" in ids
    assert "k1b2n4" not in ids  # one step of two branches proposes 2 nodes, not 3
    assert len(ids) == len(set(ids)) == 27


def test_a_dropped_combination_names_both_values() -> None:
    grid = expand((1,), (2,), (8,))

    (gone,) = grid.dropped
    assert (gone.num_steps, gone.topk, gone.num_draft_tokens) == (1, 2, 8)
    assert "num_draft_tokens=8" in gone.reason
    assert "num_steps=1 topk=2" in gone.reason


def test_dropped_combinations_are_told_and_the_rest_counted() -> None:
    grid = expand((1,), (4,), (8, 16, 32))
    assert len(grid.dropped) == 3
    first, rest = grid.told_drops(1)
    assert first.startswith("dropped 1/4/8: num_draft_tokens=8 does not fit")
    assert rest == "and 2 more, which report.md lists"
    assert len(grid.told_drops()) == 3
    assert expand((0,), (1,), (1,)).told_drops() == ()


def test_the_baseline_is_always_there_and_only_once() -> None:
    assert [p.point_id for p in expand((3,), (1,), (4,)).points] == ["base", "k3"]
    assert [p.point_id for p in expand((0, 0), (1, 2), (4,)).points] == ["base"]


def test_a_chain_takes_no_num_draft_tokens_and_is_marked_derived() -> None:
    grid = expand((3,), (1,), (4, 16))

    chain = grid.points[1]
    assert chain.spec == SpecConfig.chain(3)
    assert chain.derived
    assert grid.dropped == ()


def test_as_sglang_resolves_a_chain_and_lists_the_override() -> None:
    grid = expand((1,), (1,), (16,), as_engine="sglang")

    (point,) = grid.points[1:]
    assert point.spec == SpecConfig.chain(1)
    (override,) = point.overrides
    assert (override.name, override.asked, override.resolved) == ("num_draft_tokens", "16", "2")


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
)
def test_every_point_is_legal_and_unique(k: list[int], b: list[int], n: list[int]) -> None:
    grid = expand(k, b, n)

    specs = [p.spec for p in grid.points]
    assert len(specs) == len(set(specs))
    assert specs[0].is_baseline
    for spec in specs[1:]:
        assert spec.num_draft_tokens - 1 <= SpecConfig.most_nodes(spec.num_steps, spec.topk)
    trees = {(x, y, z) for x in k if x for y in b if y > 1 for z in n}
    kept = {(s.num_steps, s.topk, s.num_draft_tokens) for s in specs if s.topk > 1}
    gone = {(d.num_steps, d.topk, d.num_draft_tokens) for d in grid.dropped}
    assert kept | gone == trees
    assert not kept & gone


@pytest.mark.parametrize(
    ("text", "values"),
    [("0..5", (0, 1, 2, 3, 4, 5)), ("1,3,5", (1, 3, 5)), ("7, 1..2 ,7", (7, 1, 2)), ("4", (4,))],
)
def test_lists_and_ranges(text: str, values: tuple[int, ...]) -> None:
    assert parse_values(text, flag="--x") == values


@pytest.mark.parametrize("text", ["", "a", "1..", "5..3", "-1", "1.5", "1,,2", "0..100000"])
def test_a_malformed_list_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--topk"):
        parse_values(text, flag="--topk")


def test_a_value_below_the_least_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 is too small"):
        parse_values("0,1", flag="--topk", least=1)


def test_points_that_a_server_refuses_go_to_the_dropped_with_the_reason() -> None:
    grid = expand((0, 1, 3), (1,), ())
    left = grid.less({SpecConfig.baseline(): "it drafts", SpecConfig.chain(1): "it runs k3"})
    assert [point.point_id for point in left.points] == ["k3"]
    assert left.told_drops() == ("dropped 0/1/1: it drafts", "dropped 1/1/2: it runs k3")
    assert grid.less({}) == grid
