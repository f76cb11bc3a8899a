"""Labels of points: short, unique, and no more than Prometheus should bear."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.collectors.catalogue import MOST_POINTS, MOST_POSITIONS
from specbench.collectors.points import Cell, name_points
from specbench.config import SpecConfig
from specbench.errors import ConfigError

K3 = SpecConfig.chain(3)


def test_a_label_says_no_more_than_it_must() -> None:
    tree = SpecConfig(num_steps=3, topk=4, num_draft_tokens=16)
    cells = [
        Cell(spec=spec, batch_size=size, temperature=0.0, workload="default")
        for spec, size in product((SpecConfig.baseline(), K3, tree), (1, 4))
    ]
    assert list(name_points(cells).values()) == [
        "base.bs1", "base.bs4", "k3.bs1", "k3.bs4", "k3b4n16.bs1", "k3b4n16.bs4",
    ]  # fmt: skip
    assert [cell.arm for cell in cells] == ["baseline"] * 2 + ["spec"] * 4


def test_workload_and_temperature_are_named_where_they_differ() -> None:
    cells = [
        Cell(spec=K3, batch_size=1, temperature=t, workload=w)
        for t, w in product((0.0, 0.7), ("chat", "code"))
    ]
    assert list(name_points(cells).values()) == [
        "k3.bs1.chat.t0", "k3.bs1.code.t0", "k3.bs1.chat.t0.7", "k3.bs1.code.t0.7",
    ]  # fmt: skip


def test_a_cell_that_comes_twice_has_one_label() -> None:
    cell = Cell(spec=K3, batch_size=1)
    assert name_points([cell, cell]) == {cell: "k3.bs1"}


@given(
    st.sets(
        st.tuples(
            st.integers(1, 3),
            st.sampled_from([1, 11, 7]),
            st.sampled_from([0.0, 0.7, 7.0, 1.1]),
            st.sampled_from(["t0", "a", "a.t0", "7.a", "t0.7", "1.t1"]),
        ),
        max_size=40,
    )
)
def test_two_cells_never_share_a_label(values: set[tuple[int, int, float, str]]) -> None:
    cells = [
        Cell(spec=SpecConfig.chain(k), batch_size=size, temperature=t, workload=w)
        for k, size, t, w in values
    ]
    names = name_points(cells)
    assert len(set(names.values())) == len(cells)


def test_too_many_points_are_refused() -> None:
    cells = [Cell(spec=K3, batch_size=size) for size in range(1, MOST_POINTS + 1)]
    assert len(name_points(cells)) == MOST_POINTS
    with pytest.raises(ConfigError, match=f"{MOST_POINTS + 1} points .* At most {MOST_POINTS}"):
        name_points([*cells, Cell(spec=SpecConfig.baseline(), batch_size=1)])


def test_a_draft_with_more_positions_than_labels_is_refused() -> None:
    deep = SpecConfig.chain(MOST_POSITIONS + 1)
    with pytest.raises(ConfigError, match="k33 drafts 33 positions"):
        name_points([Cell(spec=deep, batch_size=1)])
