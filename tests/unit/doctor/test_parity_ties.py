"""Choices that fell differently: ties by the scores behind them, computed apart."""

from __future__ import annotations

import pytest
import torch

from specbench.config import EngineConfig
from specbench.doctor.parity_compare import Comparison, relative, tolerance
from specbench.doctor.parity_setup import CHAIN, TREE, Setup, engines
from specbench.doctor.parity_ties import draft_ties, path_probabilities, target_ties
from specbench.doctor.parity_watch import Watched, run
from specbench.engine.pair import ModelPair
from specbench.engine.probe_draft import ProbeDraft
from tests.drive import new_request
from tests.tiny import shared_pair

PROMPT = [(j * 7 + 5) % 250 for j in range(30)]
LIMIT = tolerance(torch.float32)


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    files = shared_pair(skilled=False)
    return ModelPair.load(files.target, files.draft, EngineConfig(dtype="float32", kernels="torch"))


@pytest.fixture(scope="module")
def tree(pair: ModelPair) -> Watched:
    engine = engines(pair)(Setup(spec=TREE, max_len=96))
    return run(engine, [new_request("r", PROMPT, 8)])


def test_the_most_likely_paths_are_those_that_the_engine_drafts(
    pair: ModelPair, tree: Watched
) -> None:
    step, text = tree.steps["r"][0], tree.first["r"].tokens
    inside = path_probabilities(pair, text, step.paths)
    assert inside == sorted(inside, reverse=True) or min(inside) > 0
    by_path = dict(zip(step.paths, inside, strict=True))
    for path, share in by_path.items():
        assert share <= by_path.get(path[:-1], 1.0)
    others = [(token,) for token in range(20) if (token,) not in by_path]
    best_left_out = max(path_probabilities(pair, text, others))
    assert best_left_out < min(share for path, share in by_path.items() if len(path) == 1)


def test_a_token_outside_the_map_has_no_share(pair: ModelPair) -> None:
    known = set(ProbeDraft.load(pair, pair.inputs["path:draft"]).target_ids().tolist())
    outside = next(token for token in range(288) if token not in known)
    assert path_probabilities(pair, PROMPT, [(outside,)]) == [0.0]


def test_a_draft_that_parts_needs_a_tie(pair: ModelPair, tree: Watched) -> None:
    text, paths = tree.first["r"].tokens, tree.steps["r"][0].paths
    assert draft_ties(pair, text, paths, paths[::-1], LIMIT)
    other = [((path[0] + 1) % 200, *path[1:]) for path in paths]
    assert not draft_ties(pair, text, paths, other, LIMIT)
    assert not draft_ties(pair, text, paths, paths[:-1], LIMIT)
    assert draft_ties(pair, text, [(7,)], [(8,)], 1.0)  # any two tie when all is allowed


def test_the_targets_choice_is_no_tie_on_random_weights(pair: ModelPair) -> None:
    assert not target_ties(pair, PROMPT)


def test_a_run_against_another_text_differs_at_once(pair: ModelPair) -> None:
    engine = engines(pair)(Setup(spec=CHAIN, max_len=96))
    one = run(engine, [new_request("r", PROMPT, 8)])
    two = run(engine, [new_request("r", PROMPT[::-1], 8)])
    same = Comparison(pair)
    same.compare_steps(one, two)
    assert same.first is not None
    assert same.first.step == 1
    again = Comparison(pair)
    again.compare_steps(one, one)
    assert again.first is None
    assert again.steps == len(one.steps["r"])


def test_rows_are_held_against_the_larger() -> None:
    one = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])
    assert relative(one, one).tolist() == [[0.0, 0.0]]
    assert relative(one, 2 * one).tolist() == [[0.5, 0.0]]
    assert relative(one, -one).tolist() == [[2.0, 0.0]]
    assert relative(one, one * torch.nan).tolist() == [[2.0, 2.0]]
