"""Walking trees: greedy against brute force, and who decides a lane that samples."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.engine.drafter import chain_tree
from specbench.engine.proposal import Proposal
from specbench.engine.sampling import Chooser
from specbench.engine.tree import Tree, ancestors, chain_shape, links
from specbench.engine.verify import best_tokens, greedy_walk, verify
from specbench.errors import EngineError
from specbench.request import SamplingParams
from specbench.verification import Verification, VerifyRules

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
    assert verdict.lost == ()


def test_the_drafts_that_would_have_come_next_are_told() -> None:
    chain = chain_tree(torch.tensor([[7, 1, 2, 3]]), chain_shape(4, CPU))
    for best, lost in (([5, 0, 0, 0], (1, 2, 3)), ([1, 2, 0, 0], (3,)), ([1, 2, 3, 4], ())):
        (verdict,) = verify(one_hot(best), chain, [greedy()])
        assert verdict.lost == lost
    tree = tree_of([7, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 1, 2])
    (verdict,) = verify(one_hot([0] * 6), tree, [greedy()])
    assert verdict.lost == (1, 3)  # the first of each level's children
    (verdict,) = verify(one_hot([2, 0, 0, 0, 0, 0]), tree, [greedy()])
    assert verdict.lost == (5,)


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


def test_mixed_batches_walk_each_lane_in_its_own_way() -> None:
    chain = chain_tree(torch.tensor([[5, 1], [5, 1]]), chain_shape(2, CPU))
    sampled = Chooser(sampling=SamplingParams(temperature=1.0, top_k=1), coins=random.Random(0))
    logits = one_hot([1, 2, 3, 0]) * 5
    first, second = verify(logits, chain, [greedy(), sampled])
    assert first.tokens == (1, 2)
    assert second.tokens == (3,)


def sampled(method: Verification, seed: int = 0) -> Chooser:
    rules = VerifyRules(method=method)
    params = SamplingParams(temperature=1.0, seed=seed)
    return Chooser(sampling=params, coins=random.Random(seed), rules=rules)


def chain_of(lanes: list[list[int]], probs: torch.Tensor | None = None) -> Tree:
    tree = chain_tree(torch.tensor(lanes), chain_shape(len(lanes[0]), CPU))
    if probs is not None:
        tree.proposal = Proposal(probs=probs, target_ids=torch.arange(probs.shape[-1]))
    return tree


def test_each_method_decides_by_what_it_knows() -> None:
    """The draft is drawn from q = p, where p gives it 0.1: only q makes it sure of acceptance."""
    logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).double().log()
    q = torch.tensor([[[0.9, 0.1]]]).double()
    kept = dict.fromkeys(Verification, 0)
    for method in Verification:
        for seed in range(300):
            (verdict,) = verify(logits, chain_of([[0, 1]], q), [sampled(method, seed)])
            kept[method] += verdict.accepted
            assert len(verdict.tokens) == verdict.accepted + 1
    assert kept[Verification.REJECTION] == kept[Verification.BLOCK] == 300
    assert kept[Verification.TARGET_ONLY] == kept[Verification.ONE_HOT]
    assert 15 < kept[Verification.ONE_HOT] < 50


def test_a_lanes_own_distribution_is_used() -> None:
    """Greedy, broken and sampled lanes together: lane 2 has q = p, lane 3 a q that forbids it."""
    logits = torch.tensor([[0.2, 0.8], [0.5, 0.5]]).double().log().repeat(4, 1)
    logits[2, 0] = float("nan")
    q = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.2, 0.8], [1.0, 0.0]]).double()[:, None]
    choosers = [greedy(), *(sampled(Verification.REJECTION, seed) for seed in range(3))]
    tree = chain_of([[0, 1], [0, 1], [0, 0], [0, 1]], q)
    first, broken, sure, never = verify(logits, tree, choosers)
    assert (first.path, first.tokens[0], broken.finite) == ((0, 1), 1, False)
    assert sure.path == (0, 1)
    assert never.path == (0,)


def test_lanes_with_different_rules_may_share_a_batch() -> None:
    logits = torch.tensor([[0.3, 0.7], [0.6, 0.4]]).double().log().repeat(3, 1)
    q = torch.tensor([[0.3, 0.7]]).double().repeat(3, 1)[:, None]
    methods = [Verification.BLOCK, Verification.TARGET_ONLY, Verification.REJECTION]
    together = verify(
        logits, chain_of([[0, 1]] * 3, q), [sampled(m, i) for i, m in enumerate(methods)]
    )
    for lane, method in enumerate(methods):
        alone = verify(logits[:2], chain_of([[0, 1]], q[:1]), [sampled(method, lane)])
        assert alone == [together[lane]]


def test_a_lane_spends_the_same_coins_whatever_happens() -> None:
    logits = torch.tensor([[0.3, 0.7], [0.6, 0.4]]).double().log()
    for method in (Verification.TARGET_ONLY, Verification.ONE_HOT):
        chooser, expected = sampled(method), random.Random(0)
        verify(logits, chain_of([[0, 1]]), [chooser])
        for _ in range(3):
            expected.random()
        assert chooser.coins.getstate() == expected.getstate()


def test_a_tree_without_its_distribution_is_refused() -> None:
    logits = torch.zeros(2, 4)
    with pytest.raises(EngineError, match="distribution that drafts come from"):
        verify(logits, chain_of([[0, 1]]), [sampled(Verification.REJECTION)])
