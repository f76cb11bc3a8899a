"""The trees of the probe are the engine's, and so are the verify steps that follow from them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from specbench.config import SpecConfig
from specbench.engine.drafter import chain_tree
from specbench.engine.engine import Engine
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import tree_walk
from specbench.engine.probe_text import greedy_texts
from specbench.engine.probe_tree import matched, tree_levels
from specbench.engine.tree import Tree, chain_shape
from specbench.errors import ConfigError
from tests.drive import TREES, drive, new_engine, new_request, prompts
from tests.tiny import shared_pair

MOST = 6


@pytest.fixture(scope="module")
def engine() -> Engine:
    return new_engine()


@pytest.fixture(scope="module")
def captured(engine: Engine) -> Capture:
    requests = [new_request(f"r{i}", p, max_tokens=12 + 9 * i) for i, p in enumerate(prompts(4))]
    return capture(engine.pair, greedy_texts(engine.pair, requests, past=MOST))


@pytest.fixture(scope="module")
def draft(engine: Engine) -> ProbeDraft:
    return ProbeDraft.load(engine.pair, shared_pair().draft)


@pytest.mark.parametrize("spec", TREES, ids=lambda s: s.point_id)
def test_every_step_is_the_engines(
    engine: Engine, captured: Capture, draft: ProbeDraft, spec: SpecConfig
) -> None:
    engine.configure(spec, 1)
    requests = [
        new_request(s.request_id, s.tokens[: s.prompt_len], max_tokens=s.output_len)
        for s in captured.samples
    ]
    outcomes = drive(engine, requests)
    scores = draft.score(captured, draft.claimed, spec.num_steps)
    alive = tree_levels(draft, captured, draft.claimed, spec) & scores.greedy
    walked = tree_walk(captured, scores, alive)
    for outcome, mine in zip(outcomes, walked, strict=True):
        theirs = [(t.committed, t.accepted, t.emitted) for t in outcome.steps]
        assert [(s.committed, s.accepted, s.emitted) for s in mine] == theirs
    assert any(s.accepted >= min(spec.num_steps, 2) for text in walked for s in text)
    assert np.all(alive <= scores.tree_alive(spec.topk))  # the full tree is the bound
    assert np.all(alive[:, 0] >= scores.alive[:, 0])  # the best child is always there


def test_few_nodes_keep_fewer_levels_than_the_full_tree(
    captured: Capture, draft: ProbeDraft
) -> None:
    spec = SpecConfig(num_steps=5, topk=2, num_draft_tokens=4)
    alive = tree_levels(draft, captured, draft.claimed, spec)
    scores = draft.score(captured, draft.claimed, 5)
    assert alive[:, 4].sum() < scores.tree_alive(2)[:, 4].sum()


def test_a_path_stops_at_the_first_level_that_misses() -> None:
    parents = torch.tensor([[-1, 0, 0, 1, 2, 4]])
    tokens = torch.tensor([[9, 5, 6, 7, 7, 8]])
    tree = Tree(
        tokens=tokens,
        parents=parents,
        depths=parents,
        ranks=parents,
        seen=parents,
        depth=3,
        chain=False,
    )
    assert matched(tree, torch.tensor([[6, 7, 8]])).tolist() == [[True, True, True]]
    assert matched(tree, torch.tensor([[5, 7, 8]])).tolist() == [[True, True, False]]
    assert matched(tree, torch.tensor([[5, 8, 8]])).tolist() == [[True, False, False]]
    assert matched(tree, torch.tensor([[4, 7, 8]])).tolist() == [[False, False, False]]
    shape = chain_shape(3, torch.device("cpu"))
    chain = chain_tree(torch.tensor([[1, 2, 3], [1, 2, 3]]), shape)
    chain = dataclasses.replace(chain, parents=chain.parents.expand(2, -1))
    assert matched(chain, torch.tensor([[2, 3], [3, 3]])).tolist() == [[True] * 2, [False] * 2]


def test_a_topk_beyond_the_vocabulary(captured: Capture, draft: ProbeDraft) -> None:
    wide = SpecConfig(num_steps=1, topk=273, num_draft_tokens=274)
    with pytest.raises(ConfigError, match="topk=273 exceeds the draft's vocabulary of 272"):
        tree_levels(draft, captured, draft.claimed, wide)
