"""On two CUDA devices: ranks joined by NCCL emit what one device emits (engine-spec 9)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specbench.engine.parallel_follow import Folders
from specbench.engine.parallel_lead import lead_engine
from tests.drive import drive, new_request, prompts
from tests.ranks import CHAIN, CONFIG, PLAIN, TEXT, TIMEOUT_S, TREE, engine_of
from tests.tiny import shared_pair

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


def test_two_devices_emit_what_one_process_emits_and_have_equal_features() -> None:
    pair = shared_pair()
    one, folders = engine_of(pair, None), Folders(target=pair.target, draft=pair.draft)
    config = replace(CONFIG, device="cuda", tensor_parallel=2)
    two = lead_engine(folders, config, keep_hashes=True, timeout_s=TIMEOUT_S)
    try:
        assert two.pair.device_facts["collectives"] == "nccl"
        for point in (PLAIN, CHAIN, TREE):
            outputs = []
            for engine in (one, two):
                engine.configure(point, 2)
                asked = [new_request(f"r{i}", p, 12) for i, p in enumerate(prompts(2))]
                outputs.append([outcome.ids for outcome in drive(engine, asked)])
            assert outputs[0] == outputs[1]
        features, hashes = two.features(TEXT), two.hashes()
        assert torch.equal(features[0], features[1])
        assert hashes[0] == hashes[1]
    finally:
        two.close()
