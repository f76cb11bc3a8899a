"""Half precision takes torch's fused call and gives the same up to rounding."""

from __future__ import annotations

import torch

from specbench.config import SpecConfig
from specbench.engine.models.attention import attention_call
from tests.drive import TREES, drive, new_engine, new_request, prompts


def test_names_of_the_calls() -> None:
    assert attention_call(torch.float32) == "bmm+softmax"
    assert attention_call(torch.bfloat16) == "scaled_dot_product_attention"


def test_bfloat16_runs_chains_trees_and_batches() -> None:
    engine = new_engine(dtype="bfloat16")
    assert engine.pair.device_facts["dtype"] == "bfloat16"
    wide = new_engine()
    asked = [new_request(f"r{i}", p, 12) for i, p in enumerate(prompts(3))]
    same = total = 0
    for spec, batch_size in ((SpecConfig.baseline(), 1), (SpecConfig.chain(3), 2), (TREES[3], 1)):
        outputs = []
        for used in (engine, wide):
            used.configure(spec, batch_size)
            outputs.append([o.ids for o in drive(used, asked)])
        same += sum(a[0] == b[0] for a, b in zip(*outputs, strict=True))
        total += len(asked)
    assert same >= total - 2  # near-ties may fall either way
