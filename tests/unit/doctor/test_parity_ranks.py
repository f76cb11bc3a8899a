"""The ranks probe, on engines that stand for one of several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench.config import EngineConfig
from specbench.doctor.parity_ranks import probe_ranks
from specbench.doctor.parity_result import Parity
from specbench.doctor.parity_setup import engines
from specbench.doctor.parity_texts import parity_texts
from specbench.doctor.parity_watch import Runs
from specbench.engine.batch import Emission
from specbench.engine.engine import Engine
from specbench.engine.faults import inject
from specbench.engine.pair import ModelPair
from specbench.engine.parallel_check import RankDisagreement
from tests.drive import new_request
from tests.tiny import shared_pair

PROMPTS = [new_request(f"r{i}", list(range(5 + i, 30 - i))) for i in range(2)]


class Lead(Engine):
    """An engine that answers for two ranks: the second says what the test lets it say."""

    second: list[str] | None = None
    skewed: float = 0.0
    fault: str = ""
    parts_in: int | None = None

    def configure(self, *args: Any) -> None:
        super().configure(*args)
        if self.fault:
            inject(self, self.fault)

    def step(self) -> list[Emission]:
        if self.parts_in == 0:
            raise RankDisagreement(1, 4, "r0", "committed [1] and rank 0 [2]", "The same.")
        if self.parts_in is not None:
            self.parts_in -= 1
        return super().step()

    def hashes(self) -> dict[int, list[str]]:
        own = ["a", "b", "c"]
        return {0: own, 1: self.second or own}

    def features(self, tokens: Sequence[int]) -> dict[int, Tensor]:
        rows = torch.ones(len(tokens), 6)
        return {0: rows, 1: rows * (1 + self.skewed)}


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    files = shared_pair()
    return ModelPair.load(files.target, files.draft, EngineConfig(dtype="float32", kernels="torch"))


def outcome(pair: ModelPair, **says: Any) -> Parity:
    lead: Any = Lead(pair, EngineConfig(max_batch_size=1, max_len=160))
    for name, value in says.items():
        setattr(lead, name, value)
    with torch.inference_mode():
        return probe_ranks(Runs(engines(pair), parity_texts(pair, PROMPTS)), lead)


def test_ranks_that_agree(pair: ModelPair) -> None:
    result = outcome(pair)
    assert result.agrees
    assert "2 ranks against one, 3 hashes each" in result.compared
    assert probe_ranks(Runs(engines(pair), parity_texts(pair, PROMPTS)), None).agrees is None


def test_partial_sums_differ_from_one_rank(pair: ModelPair) -> None:
    result = outcome(pair, fault="partial_sum")
    assert result.first is not None
    assert "features differ" in result.first.what or "drafted tokens" in result.first.what


@pytest.mark.parametrize(
    ("says", "told", "step"),
    [
        ({"second": ["a", "x", "c"]}, "rank 1 committed other tokens", 1),
        ({"second": ["a", "b"]}, "rank 1 committed other tokens", 2),
        ({"skewed": 0.01}, "features of rank 1 differ by", 0),
        ({"parts_in": 5}, "rank 1 committed [1] and rank 0 [2]", 4),
    ],
)
def test_ranks_that_part(pair: ModelPair, says: dict[str, Any], told: str, step: int) -> None:
    result = outcome(pair, **says)
    assert result.first is not None
    assert told in result.first.what
    assert result.first.step == step
    found = result.finding()
    assert found is not None
    assert found.code == "parity.ranks"
