"""Walking trees: greedy against brute force, sampling against the target's own distribution."""

from __future__ import annotations

import itertools
import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.engine.draft import chain_tree
from specbench.engine.tree import Tree, ancestors, chain_shape, links
from specbench.engine.verify import Chooser, best_tokens, greedy_walk, sampled_walk, verify
from specbench.request import SamplingParams

CPU = torch.device("cpu")


def greedy() -> Chooser:
    return Chooser(sampling=SamplingParams(), coins=random.Random(0))


def tree_of(tokens: list[int], parents: list[int]) -> Tree:
    depths = [0] * len(parents)
    for node in range(1, len(parents)):
        depths[node] = depths[parents[node]] + 1
    above = torch.tensor([parents])
    return Tree(
        tokens=torch.tensor([tokens]),
        parents=above,
        depths=torch.tensor([depths]),
        ranks=torch.tensor([[0] * len(parents)]),
        seen=ancestors(above, max(depths)),
        depth=max(depths),
        chain=False,
    )


def one_hot(best: list[int], vocab: int = 8) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(best), vocab).float()


def test_the_walk_of_the_specification() -> None:
    tree = tree_of([7, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 1, 2])
    (verdict,) = verify(one_hot([1, 4, 0, 0, 6, 0]), tree, [greedy()])
    assert verdict.path == (0, 1, 4)
    assert verdict.tokens == (1, 4, 6)
    assert verdict.accepted == 2
    assert verdict.depth == 2


def test_nothing_accepted_still_gives_the_bonus() -> None:
    tree = tree_of([7, 1, 2], [-1, 0, 0])
    (verdict,) = verify(one_hot([3, 0, 0]), tree, [greedy()])
    assert (verdict.path, verdict.tokens) == ((0,), (3,))


def test_the_empty_tree_is_plain_decoding() -> None:
    tree = chain_tree(torch.tensor([[5]]), chain_shape(1, CPU))
    (verdict,) = verify(one_hot([6]), tree, [greedy()])
    assert (verdict.path, verdict.tokens, verdict.depth) == ((0,), (6,), 0)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_greedy_walk_is_the_longest_matching_path(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 10))
    parents = [-1] + [data.draw(st.integers(0, n - 1)) for n in range(1, nodes)]
    tokens: list[int] = []
    best = data.draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes))
    for n in range(nodes):  # siblings carry distinct tokens, as top-k choices do
        taken = {tokens[m] for m in range(n) if parents[m] == parents[n]}
        tokens.append(next(t for t in range(20) if t not in taken))
    path, bonus = greedy_walk(tokens, *links(parents), best)
    assert bonus == best[path[-1]]
    for above, node in itertools.pairwise(path):
        assert parents[node] == above
        assert tokens[node] == best[above]
    assert not any(parents[n] == path[-1] and tokens[n] == bonus for n in range(1, nodes))


def test_scores_that_are_not_finite_are_found_by_row() -> None:
    logits = torch.zeros(3, 4)
    logits[1, 2] = float("nan")
    assert best_tokens(logits)[1] == [True, False, True]
    logits[1, 2], logits[2, 0] = 0.0, float("-inf")
    assert best_tokens(logits)[1] == [True, True, False]
    chain = chain_tree(torch.tensor([[1], [1], [1]]), chain_shape(1, CPU))
    verdicts = verify(logits, chain, [greedy()] * 3)
    assert [v.finite for v in verdicts] == [True, True, False]


def frequencies(
    first: list[int], sibling: list[int], tokens: list[int], probs: torch.Tensor, runs: int
) -> torch.Tensor:
    """How often each first token comes out of a sampled walk."""
    coins, counts = random.Random(1), torch.zeros(probs.shape[1])
    for _ in range(runs):
        path, bonus = sampled_walk(tokens, first, sibling, probs, coins)
        counts[tokens[path[1]] if len(path) > 1 else bonus] += 1
    return counts / runs


def test_tree_sampling_keeps_the_targets_distribution() -> None:
    """The example of engine-spec 6.2: p = {A .5, B .3, C .2}, children A and B."""
    probs = torch.tensor([[0.5, 0.3, 0.2]] * 3, dtype=torch.float64)
    seen = frequencies(*links([-1, 0, 0]), [9, 0, 1], probs, 6_000)
    torch.testing.assert_close(seen.double(), probs[0], atol=0.025, rtol=0)


def test_a_draft_without_probability_is_never_accepted() -> None:
    probs = torch.tensor([[0.0, 1.0]] * 2, dtype=torch.float64)
    seen = frequencies(*links([-1, 0]), [9, 0], probs, 200)
    assert seen.tolist() == [0.0, 1.0]


def test_mixed_batches_walk_each_lane_in_its_own_way() -> None:
    chain = chain_tree(torch.tensor([[5, 1], [5, 1]]), chain_shape(2, CPU))
    sampled = Chooser(sampling=SamplingParams(temperature=1.0, top_k=1), coins=random.Random(0))
    logits = one_hot([1, 2, 3, 0]) * 5
    first, second = verify(logits, chain, [greedy(), sampled])
    assert first.tokens == (1, 2)
    assert second.tokens == (3,)
