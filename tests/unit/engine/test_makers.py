"""What the makers say of the forwards that run."""

from __future__ import annotations

import pytest

from specbench.config import EngineConfig
from specbench.engine.native import build, choice
from specbench.engine.pair import ModelPair
from tests.tiny import shared_pair

compiled = pytest.mark.skipif(build.native().library is None, reason="kernels do not build here")


@compiled
@pytest.mark.parametrize("fits", [True, False])
def test_a_draft_that_torch_runs_beside_a_compiled_target_is_told(
    monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    if not fits:
        monkeypatch.setattr(choice, "MAX_TABLE_BYTES", 0)
    pair, config = shared_pair(), EngineConfig(dtype="float32", max_len=64)
    told = ModelPair.load(pair.target, pair.draft, config).device_facts
    assert told["kernels"].startswith("native")
    assert told.get("draft_kernels") == (None if fits else "torch")
