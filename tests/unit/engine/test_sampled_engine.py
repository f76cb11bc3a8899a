"""Sampling through the whole engine: every rule, mixed batches, seeds, and the limit of T to 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine import verify as verify_module
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode
from specbench.engine.rejection import reject_chains
from specbench.engine.tree_sampling import Walks
from specbench.errors import ConfigError
from specbench.request import Request
from specbench.verification import Verification
from tests.drive import accept_length, drive, new_engine, new_request, prompts

CHAIN, TREE = SpecConfig.chain(3), SpecConfig(num_steps=3, topk=4, num_draft_tokens=8)
POINTS = [(method, CHAIN) for method in Verification] + [(Verification.TARGET_ONLY, TREE)]
each_rule = pytest.mark.parametrize(
    ("method", "spec"), POINTS, ids=lambda x: x.point_id if isinstance(x, SpecConfig) else x.value
)


def mixed(count: int = 6) -> list[Request]:
    """Greedy and sampled requests, each with parameters of its own."""
    settings: list[dict[str, float]] = [
        {},
        {"temperature": 0.8},
        {"temperature": 1.1, "top_k": 5},
        {"temperature": 0.6, "top_p": 0.7},
        {"temperature": 0.9, "min_p": 0.1},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    ]
    return [
        new_request(f"r{i}", prompt, 20 + i, seed=40 + i, **settings[i % len(settings)])
        for i, prompt in enumerate(prompts(count))
    ]


def outputs(engine: Engine, requests: Sequence[Request]) -> list[tuple[int, ...]]:
    return [outcome.ids for outcome in drive(engine, requests)]


@each_rule
def test_a_mixed_batch_equals_one_by_one(method: Verification, spec: SpecConfig) -> None:
    engine = new_engine(verification=method, max_batch_size=4)
    engine.configure(spec, 1)
    alone = outputs(engine, mixed())
    engine.configure(spec, 4)
    assert outputs(engine, mixed()) == alone
    assert outputs(engine, mixed()[::-1])[::-1] == alone
    plain = engine
    plain.configure(SpecConfig.baseline(), 1)
    assert outputs(plain, mixed()[:1]) == alone[:1]  # the greedy one


@each_rule
def test_seeds_decide_and_nothing_else_does(method: Verification, spec: SpecConfig) -> None:
    engine = new_engine(verification=method)
    engine.configure(spec, 1)
    asked = new_request("r", prompts(3)[2], temperature=1.0, seed=1)
    other = dataclasses.replace(asked, sampling=dataclasses.replace(asked.sampling, seed=2))
    first, again, second = outputs(engine, [asked, asked, other])
    assert first == again
    assert first != second


@each_rule
def test_greedy_is_the_limit_of_low_temperatures(method: Verification, spec: SpecConfig) -> None:
    engine = new_engine(verification=method)
    engine.configure(spec, 1)
    cold = [new_request("r", prompt, temperature=1e-7) for prompt in prompts(4)]
    greedy = [new_request("r", prompt) for prompt in prompts(4)]
    seen, expected = drive(engine, cold), drive(engine, greedy)
    assert [o.ids for o in seen] == [o.ids for o in expected]
    assert accept_length(seen) == accept_length(expected) > 1.5


def test_first_drafts_are_accepted_as_often_as_p_and_q_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E[first draft kept] = sum min(p, q) with the engine's own p and q, within 4 standard errors.

    So the drafts were drawn from the q that is kept, behind the filters and the map of the draft's
    vocabulary.
    """
    surplus: list[float] = []
    drawn: list[Tensor] = []

    def recorded(probs: Tensor, drafts: Tensor, proposed: Tensor, coins: Tensor) -> Walks:
        walks = reject_chains(probs, drafts, proposed, coins)
        overlap = torch.minimum(probs[:, 0], proposed[:, 0]).sum(-1)
        surplus.extend((walks.kept[:, 1].double() - overlap).tolist())
        drawn.append(proposed[:, 0].gather(1, drafts[:, :1]))
        torch.testing.assert_close(proposed.sum(-1), torch.ones_like(proposed[..., 0]))
        return walks

    monkeypatch.setattr(verify_module, "reject_chains", recorded)
    engine = new_engine(verification=Verification.REJECTION, max_batch_size=8)
    engine.configure(CHAIN, 8)
    settings = {"temperature": 1.0, "top_p": 0.95}
    drive(
        engine,
        [new_request(f"r{i}", p, 150, seed=i, **settings) for i, p in enumerate(prompts(8))],
    )
    spread = torch.tensor(surplus)
    assert len(surplus) > 300
    assert abs(float(spread.mean())) < 4 * float(spread.std()) / len(surplus) ** 0.5
    assert float(torch.cat(drawn).min()) > 0  # a draft comes from what its distribution holds


@pytest.mark.parametrize("method", [Verification.REJECTION, Verification.BLOCK])
def test_recorded_regions_take_the_drafts_that_were_drawn(method: Verification) -> None:
    """Emulated graphs: the drafting is outside of them, the scores it begins with come from one."""
    eager = new_engine(verification=method, max_batch_size=4)
    eager.configure(CHAIN, 4)
    recorded = Engine(eager.pair, eager.config, GraphMode.EMULATED)
    recorded.configure(CHAIN, 4)
    assert outputs(recorded, mixed()) == outputs(eager, mixed())


def test_a_tree_needs_the_rule_that_takes_trees() -> None:
    engine = new_engine(verification=Verification.BLOCK)
    engine.configure(CHAIN, 1)
    with pytest.raises(ConfigError, match="verification=block checks chains, but topk=4"):
        engine.configure(TREE, 1)
    assert len(outputs(engine, mixed(1))[0]) == 20  # the engine goes on as it was
