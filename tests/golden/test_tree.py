"""The golden tree of engine-spec 5.5, value for value: b = 2, K = 3, N = 6, committed length 7."""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.engine.tree import Growth, Tree, links

COMMITTED = 7


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def grown() -> tuple[Growth, list[list[int]]]:
    growth = Growth(torch.tensor([[10, 11]]), tensor(0.6, 0.3)[None])
    rows = [
        growth.grow(torch.tensor([[[20, 21], [22, 23]]]), tensor(0.5, 0.4, 0.9, 0.05).view(1, 2, 2))
    ]
    beam = [growth.tokens.tolist()[0]]
    rows.append(
        growth.grow(torch.tensor([[[30, 31], [32, 33]]]), tensor(0.7, 0.2, 0.8, 0.1).view(1, 2, 2))
    )
    return growth, [rows[0].tolist()[0], beam[0]]


def golden() -> Tree:
    return grown()[0].tree(torch.tensor([5]), 6)


def test_beam_after_the_first_growth() -> None:
    _, (rows, tokens) = grown()
    assert rows == [0, 1]
    assert tokens == [20, 22]


def test_pool_scores() -> None:
    growth, _ = grown()
    pool = torch.cat(growth._pool_scores, -1)[0]
    expected = tensor(0.6, 0.3, 0.30, 0.24, 0.27, 0.015, 0.21, 0.06, 0.216, 0.027)
    torch.testing.assert_close(pool, expected)


def test_parent_list_and_selection() -> None:
    growth, _ = grown()
    assert growth.parent_list.tolist() == [[-1, 0, 1, 2, 4]]
    assert growth.select(5).tolist() == [[0, 1, 2, 3, 4]]


def test_tree_arrays() -> None:
    tree = golden()
    assert tree.tokens.tolist() == [[5, 10, 11, 20, 21, 22]]
    assert tree.parents.tolist() == [[-1, 0, 0, 1, 1, 2]]
    assert tree.depths.tolist() == [[0, 1, 1, 2, 2, 2]]
    assert (COMMITTED + tree.depths).tolist() == [[7, 8, 8, 9, 9, 9]]
    assert tree.ranks.tolist() == [[0, 0, 1, 0, 1, 0]]


def test_retrieve_arrays() -> None:
    first, sibling = links([-1, 0, 0, 1, 1, 2])
    assert first == [1, 3, 5, -1, -1, -1]
    assert sibling == [-1, 2, -1, 4, -1, -1]


def test_mask_rows() -> None:
    rows = ["".join("01"[seen] for seen in row) for row in golden().seen[0].tolist()]
    assert rows == ["100000", "110000", "101000", "110100", "110010", "101001"]
