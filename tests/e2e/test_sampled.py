"""The shipped pair at a temperature draws the same tokens with drafts as without them.

400 seeds of one prompt, three tokens, against 400 other seeds of plain decoding. A rule that is
lossy by its settings and a verifier that is wrong on purpose are found out by the same test, so it
can see what it looks for. benchmarks/losslessness_sampled.py does this with more of everything.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.losslessness_sampled import ARMS, PLAIN, SAMPLES, compare, draws, load_pair
from specbench.engine import verify as verify_module
from specbench.engine.pair import ModelPair
from specbench.engine.rejection import reject_chains
from specbench.engine.tree_sampling import Walks
from specbench.request import Request, SamplingParams

SEEDS = 400
ASKED = Request(
    request_id="the",
    prompt="The",
    sampling=SamplingParams(temperature=0.8, top_k=4, max_tokens=3, ignore_eos=True),
)
EXACT_P, WRONG_P = 1e-4, 1e-8


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return load_pair()


@pytest.fixture(scope="module")
def plain(pair: ModelPair) -> list[tuple[int, ...]]:
    return draws(pair, SAMPLES[PLAIN], ASKED, SEEDS, 0)


@pytest.mark.parametrize("name", ["target_only tree", "rejection k3", "block k3"])
def test_drafts_do_not_change_what_is_drawn(
    pair: ModelPair, plain: list[tuple[int, ...]], name: str
) -> None:
    first = (1 + list(ARMS).index(name)) * SEEDS
    found = compare(plain, draws(pair, ARMS[name], ASKED, SEEDS, first))
    assert found.cells > 10
    assert found.p > EXACT_P


def test_a_lossy_rule_is_found_out(pair: ModelPair, plain: list[tuple[int, ...]]) -> None:
    point = ARMS["LOSSY threshold_acc=0.25"]
    assert compare(plain, draws(pair, point, ASKED, SEEDS, 7 * SEEDS)).p < WRONG_P


def accepts_all(probs: Tensor, drafts: Tensor, proposed: Tensor, coins: Tensor) -> Walks:
    """Every draft is accepted, whatever the target thinks of it."""
    return reject_chains(probs, drafts, proposed, torch.zeros_like(coins))


def test_a_wrong_verifier_is_found_out(
    pair: ModelPair, plain: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_module, "reject_chains", accepts_all)
    found = compare(plain, draws(pair, ARMS["rejection k3"], ASKED, SEEDS, 8 * SEEDS))
    assert found.p < WRONG_P
