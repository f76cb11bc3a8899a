"""The probe's walk is what the engine does, and its sums obey their order."""

from __future__ import annotations

import pytest

from specbench import demo
from specbench.config import EngineConfig
from specbench.engine.pair import ModelPair
from specbench.engine.probe import ProbeResult, probe
from specbench.engine.probe_draft import ProbeDraft
from specbench.errors import ConfigError, WorkloadError
from specbench.request import SamplingParams
from specbench.workload import load_workload

TOKENS = 12


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    config = EngineConfig(dtype="float32", kernels="torch")
    return ModelPair.load(demo.TARGET, demo.DRAFT, config)


def probed(pair: ModelPair, *, steps: int = 3, positions: int = 60) -> ProbeResult:
    requests = load_workload("default").requests(6, SamplingParams(max_tokens=TOKENS))
    draft = ProbeDraft.load(pair, demo.DRAFT)
    return probe(pair, draft, requests, steps=steps, positions=positions)


def test_sums(pair: ModelPair) -> None:
    found = probed(pair)
    assert (len(found.replies), found.left_out) == (5, 1)
    assert found.positions == sum(r.positions for r in found.replies) <= 60
    for r in found.replies:
        assert r.alive[0] == r.hits[0]
        assert all(k >= h for k, h in zip(r.known, r.hits, strict=True))
        assert list(r.alive) == sorted(r.alive, reverse=True)
        assert all(a <= h <= r.positions for a, h in zip(r.alive, r.hits, strict=True))
        assert r.verify_steps <= r.positions
        assert 0 <= r.accepted <= 3 * r.verify_steps
        assert r.verify_steps + r.accepted >= r.positions  # every token is emitted; clips aside
    assert sum(r.hits[0] for r in found.replies) > 0.3 * found.positions


def test_refusals(pair: ModelPair) -> None:
    with pytest.raises(ConfigError, match="num_steps 0"):
        probed(pair, steps=0)
    with pytest.raises(WorkloadError, match="budget of positions"):
        probed(pair, positions=TOKENS - 1)
