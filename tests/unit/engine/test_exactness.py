"""Lossless verification is lossless: 200,000 draws against the target's exact joint distribution.

Seeds are fixed, so a result is a fact and not a chance. A lossless rule must have p > 0.001 for
the first token, the first two, and so on up to all K + 1 that a step may emit; rules that are wrong
on purpose must fall below 1e-9 in the same test.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specbench.engine.block_verify import block_chances
from specbench.engine.rejection import first_nodes
from specbench.engine.sampling import Filters, draw, filtered
from specbench.engine.tree_sampling import Walks
from specbench.request import SamplingParams
from specbench.verification import VerifyRules
from tests import toy
from tests.toy import EXACT_P, WRONG_P, Toy, Verifier, random_toy, sample_chains, worst_p

DRAWN = [toy.by_rejection, toy.by_block]
CERTAIN = [toy.by_one_hot, toy.by_target]


def after_filters(model: Toy, **sampling: float) -> Toy:
    """The model behind the engine's own filters."""
    params = SamplingParams(temperature=0.7, **sampling)  # type: ignore[arg-type]
    tables = []
    for table in model.tables:
        filters = Filters.of([params], table)
        logits = table.log().view(1, -1, table.shape[-1])
        tables.append(filtered(logits, filters).view_as(table))
    return Toy(tables)


def with_zeros(model: Toy, first: int, last: int) -> Toy:
    """The model without the tokens from ``first`` up to ``last``."""
    tables = []
    for table in model.tables:
        kept = table.clone()
        kept[..., first:last] = 0.0
        tables.append(kept / kept.sum(-1, keepdim=True))
    return Toy(tables)


def pair(name: str, length: int) -> tuple[Toy, Toy]:
    """A target and a draft of ``length`` positions over 4 tokens."""
    target, draft = random_toy(4, length, 1), random_toy(4, length, 2)
    flat = Toy([torch.full_like(table, 0.25) for table in target.tables])
    return {
        "apart": (target, draft),
        "equal": (target, target),
        "disjoint": (with_zeros(target, 0, 2), with_zeros(draft, 2, 4)),
        "zeros": (with_zeros(target, 1, 2), draft),
        "narrow draft": (target, with_zeros(draft, 2, 3)),
        "ties": (flat, flat),
        "sharp": (random_toy(4, length, 3, 4.0), random_toy(4, length, 4, 4.0)),
        "filters": (
            after_filters(target, top_k=3, top_p=0.9, min_p=0.05),
            after_filters(draft, top_k=3, top_p=0.9, min_p=0.05),
        ),
    }[name]


PAIRS = ["apart", "equal", "disjoint", "zeros", "narrow draft", "ties", "sharp", "filters"]


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("verifier", [*DRAWN, toy.by_one_hot], ids=lambda v: v.__name__)
def test_chains_emit_the_targets_joint_distribution(
    verifier: Verifier, name: str, steps: int
) -> None:
    target, draft = pair(name, steps + 1)
    sample = sample_chains(target, draft, steps, verifier, best=verifier in CERTAIN)
    assert worst_p(sample, target) > EXACT_P
    if name == "equal" and verifier in DRAWN:
        assert int(sample.accepted.min()) == steps
    if name == "disjoint":
        assert int(sample.accepted.max()) == 0


TREES = {
    "one child": ([0, 2], [-1, 0]),
    "two children": ([0, 1, 3], [-1, 0, 0]),
    "every token": ([0, 3, 1, 0, 2], [-1, 0, 0, 0, 0]),
    "specification": ([0, 1, 2, 3, 0, 1], [-1, 0, 0, 1, 1, 2]),
    "deep": ([0, 0, 1, 2, 0, 1, 3, 0, 2], [-1, 0, 0, 1, 1, 2, 3, 3, 5]),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", ["apart", "zeros", "ties", "sharp", "filters"])
def test_trees_emit_the_targets_joint_distribution(kind: str, name: str) -> None:
    target, _ = pair(kind, 4)
    tokens, parents = TREES[name]
    assert worst_p(toy.sample_tree(target, tokens, parents, VerifyRules()), target) > EXACT_P


@pytest.mark.parametrize(
    "rules",
    [VerifyRules(threshold_acc=0.9), VerifyRules(threshold_single=0.1)],
    ids=lambda r: r.loss,
)
def test_thresholds_below_one_are_seen(rules: VerifyRules) -> None:
    target, _ = pair("apart", 3)
    tokens, parents = TREES["specification"]
    assert worst_p(toy.sample_tree(target, tokens, parents, rules), target) < WRONG_P


def test_threshold_acc_gives_the_numbers_of_the_specification() -> None:
    """engine-spec 6.2: p = {.5, .3, .2}, children 0 and 1; at 0.7: .714, .286, 0."""
    target = Toy([torch.tensor([0.5, 0.3, 0.2]).double(), torch.eye(3).double()])
    sample = toy.sample_tree(target, [0, 0, 1], [-1, 0, 0], VerifyRules(threshold_acc=0.7))
    expected = torch.tensor([5 / 7, 2 / 7, 0.0]).double()
    seen = torch.bincount(sample.tokens[:, 0], minlength=3)
    assert toy.chi_square_p(seen, expected) > EXACT_P
    always = toy.sample_tree(target, [0, 0, 1], [-1, 0, 0], VerifyRules(threshold_single=0.3))
    assert int(always.tokens[:, 0].max()) == 0


def coin_reused(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """The coin that rejected a draft also draws the token in its place."""
    return toy.by_rejection(probs, drafts, proposed, tosses[:, :1].expand_as(tosses))


def draft_forgotten(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """The residual takes off the rejected draft alone, as if it had been certain, and not q."""
    walks = toy.by_rejection(probs, drafts, proposed, tosses)
    last, lanes = walks.kept.sum(1) - 1, torch.arange(len(drafts))
    left = probs[lanes, last].clone()
    left[lanes, drafts[lanes, last.clamp(max=drafts.shape[1] - 1)]] = 0.0
    bonus = torch.where(last < drafts.shape[1], draw(left, tosses[:, -1]), walks.bonus)
    return Walks(kept=walks.kept, bonus=bonus)


def residual_forgotten(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """After a rejection the token comes from p."""
    walks = toy.by_rejection(probs, drafts, proposed, tosses)
    last = walks.kept.sum(1) - 1
    bonus = draw(probs[torch.arange(len(last)), last], tosses[:, -1])
    return Walks(kept=walks.kept, bonus=bonus)


def residual_not_renormalised(
    probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor
) -> Walks:
    """The coin is held against the residual's mass as it is; what it does not reach is token 3."""
    walks = toy.by_rejection(probs, drafts, proposed, tosses)
    last, lanes = walks.kept.sum(1) - 1, torch.arange(len(drafts))
    rejected = last < drafts.shape[1]
    left = probs[lanes, last] - proposed[lanes, last.clamp(max=drafts.shape[1] - 1)]
    mass = left.clamp(min=0).cumsum(-1)
    wrong = torch.searchsorted(mass, tosses[:, -1:].contiguous())[:, 0].clamp(max=3)
    return Walks(kept=walks.kept, bonus=torch.where(rejected, wrong, walks.bonus))


def best_drafts_called_drawn(
    probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor
) -> Walks:
    """The drafts are the draft's best tokens (see the test), the ratio is taken with q."""
    return toy.by_rejection(probs, drafts, proposed, tosses)


def block_that_stops(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """Block verification that ends at the first prefix refused, as rejection sampling does."""
    count = drafts.shape[1]
    weights, chances = block_chances(probs, drafts, proposed)
    accepted = (tosses[:, :count] < chances).long().cumprod(-1).sum(-1)
    lanes, end = torch.arange(len(drafts)), accepted.clamp(max=count - 1)
    left = weights[lanes, accepted][:, None] * probs[lanes, accepted] - proposed[lanes, end]
    left = torch.where((accepted == count)[:, None], probs[lanes, accepted], left.clamp(min=0))
    return Walks(kept=first_nodes(accepted, count), bonus=draw(left + 1e-300, tosses[:, -1]))


@pytest.mark.parametrize(
    "verifier",
    [
        coin_reused,
        draft_forgotten,
        residual_forgotten,
        residual_not_renormalised,
        best_drafts_called_drawn,
        block_that_stops,
    ],
    ids=lambda v: v.__name__,
)
def test_wrong_verifiers_are_found_out(verifier: Verifier) -> None:
    target, draft = pair("apart", 3)
    best = verifier is best_drafts_called_drawn
    assert worst_p(sample_chains(target, draft, 2, verifier, best=best), target) < WRONG_P


def test_a_draft_taken_as_certain_may_come_from_anywhere() -> None:
    """Given the draft, one-hot checking emits p; so drafts that were drawn do no harm to it."""
    target, draft = pair("apart", 3)
    assert worst_p(sample_chains(target, draft, 2, toy.by_one_hot), target) > EXACT_P


@pytest.mark.parametrize("name", PAIRS)
def test_one_hot_and_target_only_are_the_same_rule_on_a_chain(name: str) -> None:
    target, draft = pair(name, 4)
    first, second = (sample_chains(target, draft, 3, rule, best=True) for rule in CERTAIN)
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(first.accepted, second.accepted)
