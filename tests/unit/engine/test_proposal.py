"""Drafts drawn by the draft's own distribution, on its own vocabulary."""

from __future__ import annotations

import random

import torch

from specbench.engine.proposal import DraftSampler, Proposal
from specbench.engine.rejection import reject_chains
from specbench.engine.sampling import Chooser
from specbench.request import SamplingParams
from tests.toy import DRAWS, EXACT_P, chi_square_p, coins, filtered_probs

IDS = torch.tensor([5, 0, 3])  # the draft's vocabulary in the target's, in no order
LOGITS = torch.tensor([0.3, -0.4, 1.2], dtype=torch.float64)


def chooser(seed: int, **sampling: float) -> Chooser:
    params = SamplingParams(seed=seed, **sampling)  # type: ignore[arg-type]
    return Chooser(sampling=params, coins=random.Random(seed))


def sampler(lanes: int, steps: int = 2) -> DraftSampler:
    made = DraftSampler(lanes=lanes, steps=steps, target_ids=IDS, dtype=torch.float64)
    made.keep(slice(0, lanes), LOGITS.expand(lanes, -1))
    return made


def test_greedy_lanes_take_the_best_and_others_draw() -> None:
    made, lanes = sampler(400), [chooser(seed, temperature=0.7, top_k=2) for seed in range(399)]
    assert made.begin([chooser(0), *lanes], 400)
    first, later = made.pick(0), made.pick(1, LOGITS.expand(400, -1))
    assert [int(first[0]), int(later[0])] == [3, 3]
    assert set(first.tolist()) == set(later.tolist()) == {5, 3}
    expected = filtered_probs(LOGITS[None], lanes[0].sampling)
    torch.testing.assert_close(made.proposal.probs[1:, 0], expected.expand(399, -1))
    share = float((first[1:] == 3).double().mean())
    assert abs(share - float(expected[0, 2])) < 4 * (0.25 / 399) ** 0.5


def test_an_all_greedy_batch_draws_nothing() -> None:
    made, lane = sampler(2), chooser(0)
    before = lane.coins.getstate()
    assert not made.begin([lane, chooser(1)], 2)
    assert lane.coins.getstate() == before


def test_a_lane_draws_the_same_in_any_company() -> None:
    alone = sampler(1)
    alone.begin([chooser(7, temperature=1.0)], 1)
    together = sampler(4)
    others = [chooser(1, temperature=2.0, top_p=0.5), chooser(0)]
    together.begin([*others, chooser(7, temperature=1.0)], 4)
    for step in range(2):
        scores = None if step == 0 else LOGITS[None]
        one = alone.pick(step, scores)
        many = together.pick(step, None if scores is None else scores.expand(4, -1))
        assert one[0] == many[2]
    assert torch.equal(alone.proposal.probs[0], together.proposal.probs[2])


def test_scores_follow_a_sequence_to_its_new_lane() -> None:
    made = sampler(2)
    made.keep(slice(1, 2), torch.tensor([[9.0, 0.0, 0.0]]).double())
    made.move(1, 0)
    made.begin([chooser(0, temperature=0.1)], 1)
    assert made.pick(0).tolist() == [5]


def test_a_broken_draft_proposes_nothing() -> None:
    made = sampler(1)
    made.begin([chooser(0, temperature=1.0)], 1)
    made.pick(0)
    token = made.pick(1, torch.full((1, 3), float("nan"), dtype=torch.float64))
    assert int(token[0]) in IDS
    assert made.proposal.probs[0, 1].tolist() == [0.0, 0.0, 0.0]


def test_a_reduced_vocabulary_is_mapped_and_stays_exact() -> None:
    """The draft knows 3 of 6 tokens: accepted drafts and residual together are still p."""
    made = sampler(1, steps=1)
    made.begin([chooser(0, temperature=1.0)], 1)
    made.pick(0)
    q = made.proposal.on_target(torch.tensor([0]), 6)
    small = torch.softmax(LOGITS, 0)
    assert q[0, 0].tolist() == [small[1], 0.0, 0.0, small[2], 0.0, small[0]]
    p = torch.softmax(torch.tensor([0.1, 0.5, -1.0, 0.8, 0.2, 1.1]).double(), 0)
    generator = torch.Generator().manual_seed(3)
    drawn = torch.multinomial(q[0, 0], DRAWS, replacement=True, generator=generator)
    probs, whole = p.expand(DRAWS, 2, -1), q.expand(DRAWS, -1, -1)
    walks = reject_chains(probs, drawn[:, None], whole, coins(generator, 3))
    first = torch.where(walks.kept[:, 1], drawn, walks.bonus)
    assert chi_square_p(torch.bincount(first, minlength=6), p) > EXACT_P
    unmapped = torch.cat([small, torch.zeros(3).double()])[None].expand(DRAWS, 1, -1)
    walks = reject_chains(probs, drawn[:, None], unmapped, coins(generator, 3))
    first = torch.where(walks.kept[:, 1], drawn, walks.bonus)
    assert chi_square_p(torch.bincount(first, minlength=6), p) < 1e-9


def test_lanes_are_chosen_by_index() -> None:
    probs = torch.tensor([[[1.0, 0, 0]], [[0, 1.0, 0]]])
    whole = Proposal(probs=probs, target_ids=IDS).on_target(torch.tensor([1]), 6)
    assert whole.tolist() == [[[1.0, 0, 0, 0, 0, 0]]]
