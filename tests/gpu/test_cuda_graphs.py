"""On a CUDA device: captured graphs give the traces of eager steps (engine-spec 7.5)."""

from __future__ import annotations

import pytest
import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode
from specbench.engine.pair import ModelPair
from tests.drive import TREES, drive, new_request, prompts
from tests.tiny import shared_pair

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def outputs(
    mode: GraphMode, spec: SpecConfig, batch_size: int, device: str = "cuda"
) -> list[tuple[tuple[int, ...], list[int]]]:
    pair = shared_pair()
    config = EngineConfig(device=device, dtype="float32", max_len=512, max_batch_size=6)
    engine = Engine(ModelPair.load(pair.target, pair.draft, config), config, mode)
    engine.configure(spec, batch_size)
    asked = [new_request(f"r{i}", p, 60 + 60 * i) for i, p in enumerate(prompts(6))]
    return [(o.ids, [s.accepted for s in o.steps]) for o in drive(engine, asked)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(
    "spec", [SpecConfig.baseline(), SpecConfig.chain(3), TREES[3]], ids=lambda s: s.point_id
)
def test_captured_steps_trace_as_eager_ones(spec: SpecConfig, batch_size: int) -> None:
    """On bucket edges (1, 2, 4) and between them; requests leave one by one, through all below."""
    eager = outputs(GraphMode.EAGER, spec, batch_size)
    if spec.is_baseline:
        assert max(len(steps) for _, steps in eager) > 200
    assert outputs(GraphMode.CAPTURED, spec, batch_size) == eager


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_another_device_than_the_current_one_captures_its_own_kernels() -> None:
    spec = SpecConfig.chain(3)
    assert outputs(GraphMode.CAPTURED, spec, 2, "cuda:1") == outputs(GraphMode.EAGER, spec, 2)


def test_the_compute_capability_is_recorded() -> None:
    pair = shared_pair()
    config = EngineConfig(device="cuda", max_len=512)
    facts = ModelPair.load(pair.target, pair.draft, config).device_facts
    assert facts["compute_capability"].startswith("sm_")
