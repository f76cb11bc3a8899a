"""Block verification by enumeration: expected lengths, and the paper's example in exact numbers."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from specbench.engine.block_verify import block_chances, verify_blocks
from tests.toy import Toy, by_block, by_rejection, random_toy, sample_chains


def every_chain(target: Toy, draft: Toy, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All chains [C, K], their probability under the draft [C], and p and q along them."""
    vocab = target.tables[0].shape[0]
    chains = torch.tensor(list(itertools.product(range(vocab), repeat=steps)))
    probs = torch.stack([target.after(chains[:, :d]) for d in range(steps + 1)], 1)
    proposed = torch.stack([draft.after(chains[:, :d]) for d in range(steps)], 1)
    return chains, draft.joint(steps), probs, proposed


def expected_by_block(target: Toy, draft: Toy, steps: int) -> float:
    """Sum over chains and lengths of P(at least that many accepted)."""
    chains, weight, probs, proposed = every_chain(target, draft, steps)
    refused = 1 - block_chances(probs, chains, proposed)[1]
    at_least = 1 - refused.flip(-1).cumprod(-1).flip(-1)
    return float((weight * at_least.sum(-1)).sum())


def expected_by_rejection(target: Toy, draft: Toy, steps: int) -> float:
    chains, weight, probs, proposed = every_chain(target, draft, steps)
    p = probs[:, :steps].gather(2, chains[..., None])[..., 0]
    q = proposed.gather(2, chains[..., None])[..., 0]
    return float((weight * (p / q).clamp(max=1).cumprod(-1).sum(-1)).sum())


def context_free(probs: list[float], length: int) -> Toy:
    row = torch.tensor(probs, dtype=torch.float64)
    return Toy([row.expand(*[len(probs)] * depth, -1) for depth in range(length)])


def test_the_example_of_the_paper() -> None:
    """Section 2: target (1/3, 2/3), draft (2/3, 1/3), two drafts: 10/9 token by token, 11/9."""
    target, draft = context_free([1 / 3, 2 / 3], 3), context_free([2 / 3, 1 / 3], 3)
    assert abs(expected_by_rejection(target, draft, 2) - 10 / 9) < 1e-12
    assert abs(expected_by_block(target, draft, 2) - 11 / 9) < 1e-12


def test_blocks_are_never_shorter_on_average() -> None:
    gains = []
    for seed in range(60):
        steps = 1 + seed % 4
        target = random_toy(3, steps + 1, 2 * seed, 1.5)
        draft = random_toy(3, steps + 1, 2 * seed + 1, 1.5)
        block = expected_by_block(target, draft, steps)
        single = expected_by_rejection(target, draft, steps)
        gains.append(block - single)
        if steps == 1:
            assert abs(block - single) < 1e-12
    assert min(gains) > -1e-12
    assert max(gains) > 0.05


def test_measured_lengths_are_the_expected_ones() -> None:
    """One draft: E = sum min(p, q). Three: the enumerations above. Within four standard errors."""
    target, draft = random_toy(4, 4, 1), random_toy(4, 4, 2)
    overlap = float(torch.minimum(target.tables[0], draft.tables[0]).sum())
    cases = [
        (by_rejection, 1, overlap),
        (by_block, 1, overlap),
        (by_rejection, 3, expected_by_rejection(target, draft, 3)),
        (by_block, 3, expected_by_block(target, draft, 3)),
    ]
    for verifier, steps, expected in cases:
        accepted = sample_chains(target, draft, steps, verifier).accepted.double()
        error = accepted.std() / len(accepted) ** 0.5
        assert abs(accepted.mean() - expected) < 4 * error


def test_equal_distributions_keep_every_draft() -> None:
    target = random_toy(3, 4, 5)
    assert abs(expected_by_block(target, target, 3) - 3) < 1e-12


def test_a_draft_that_proposes_nothing_is_refused() -> None:
    """q = 0 everywhere is what a broken draft leaves: no draft kept, and p for the next token."""
    probs = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]]).double()
    tosses = torch.zeros(1, 3).double()
    walks = verify_blocks(probs, torch.tensor([[1]]), torch.zeros(1, 1, 2).double(), tosses)
    assert walks.kept.tolist() == [[True, False]]
    assert walks.bonus.tolist() == [1]
