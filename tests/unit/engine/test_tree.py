"""Properties of trees that hold for any draft probabilities."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.config import SpecConfig
from specbench.engine.tree import Growth, Tree, ancestors, chain_shape, links, top_choices


@st.composite
def trees(draw: st.DrawFn) -> tuple[SpecConfig, Tree]:
    """A tree grown from random (often tied) probabilities, two lanes."""
    steps, width = draw(st.integers(1, 5)), draw(st.integers(2, 4))
    nodes = draw(st.integers(2, SpecConfig.most_nodes(steps, width) + 1))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    ties = draw(st.booleans())

    def probs(*size: int) -> torch.Tensor:
        values = torch.rand(size, generator=generator, dtype=torch.float64)
        return (values * 3).ceil() / 4 if ties else values

    growth = Growth(torch.arange(width).expand(2, -1), probs(2, width).sort(-1, descending=True)[0])
    counter = itertools.count(width)
    for _ in range(steps - 1):
        tokens = torch.tensor([next(counter) for _ in range(2 * width * width)])
        growth.grow(tokens.view(2, width, width), probs(2, width, width))
    spec = SpecConfig(num_steps=steps, topk=width, num_draft_tokens=nodes)
    return spec, growth.tree(torch.tensor([900, 901]), nodes)


@settings(max_examples=40, deadline=None)
@given(trees())
def test_trees_are_trees(case: tuple[SpecConfig, Tree]) -> None:
    spec, tree = case
    for lane in range(2):
        parents, depths = tree.parents[lane].tolist(), tree.depths[lane].tolist()
        assert len(parents) == spec.num_draft_tokens
        assert (parents[0], depths[0]) == (-1, 0)
        for node in range(1, len(parents)):
            assert 0 <= parents[node] < node
            assert depths[node] == depths[parents[node]] + 1
            assert depths[node] <= spec.num_steps
            expected, up = {node}, parents[node]
            while up >= 0:
                expected.add(up)
                up = parents[up]
            assert set(torch.nonzero(tree.seen[lane, node]).flatten().tolist()) == expected
        siblings = [(parents[n], int(tree.ranks[lane, n])) for n in range(1, len(parents))]
        assert len(set(siblings)) == len(siblings)
        assert all(rank < spec.topk for _, rank in siblings)


@settings(max_examples=40, deadline=None)
@given(trees())
def test_links_list_every_child_once_in_order(case: tuple[SpecConfig, Tree]) -> None:
    _, tree = case
    parents = tree.parents[0].tolist()
    first, sibling = links(parents)
    for node in range(len(parents)):
        children, child = [], first[node]
        while child >= 0:
            children.append(child)
            child = sibling[child]
        assert children == [n for n in range(1, len(parents)) if parents[n] == node]


def test_a_tie_at_the_cut_keeps_the_lower_id_and_so_the_parent() -> None:
    growth = Growth(torch.tensor([[1, 2]]), torch.tensor([[0.5, 0.25]]))
    growth.grow(torch.tensor([[[3, 4], [5, 6]]]), torch.tensor([[[1.0, 0.1], [1.0, 0.1]]]))
    assert growth.select(1).tolist() == [[0]]
    assert growth.select(3).tolist() == [[0, 1, 2]]  # 2 (0.5) before 4 (0.25, tied with 1)


def test_choices_prefer_the_lowest_id_among_equals() -> None:
    ids, probs = top_choices(torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0]]), 4)
    assert ids.tolist() == [[1, 2, 4, 0]]
    expected = torch.softmax(torch.tensor([1.0, 3.0, 3.0, 0.0, 3.0]), 0)
    torch.testing.assert_close(probs[0], expected[[1, 2, 4, 0]])


def test_chain_and_empty_tree() -> None:
    parents, depths, ranks, seen = chain_shape(3, torch.device("cpu"))
    assert parents.tolist() == [[-1, 0, 1]]
    assert depths.tolist() == [[0, 1, 2]]
    assert ranks.tolist() == [[0, 0, 0]]
    assert torch.equal(seen, ancestors(parents, 2))
    assert chain_shape(1, torch.device("cpu"))[3].tolist() == [[[True]]]
