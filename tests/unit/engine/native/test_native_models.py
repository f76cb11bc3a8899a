"""The compiled forward against torch's, and against itself with other rows beside."""

from __future__ import annotations

import dataclasses
from ctypes import byref, c_int64
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.native.build import native
from specbench.engine.native.calls import Weight, at
from specbench.engine.runner import TargetRunner
from tests.drive import accept_length, drive, new_engine, new_request, prompts
from tests.tiny import TinyPair, TinyShape, write_pair

pytestmark = pytest.mark.skipif(native().library is None, reason=native().told)

SHAPES = {
    "grouped": TinyShape(),
    "vocabulary that fills no panel": dataclasses.replace(TinyShape(), vocab=301, tied=True),
    "one key head, head of 24": TinyShape(hidden=48, heads=4, kv_heads=1, head_dim=24, eps=1e-3),
}
TOKENS = [(i * 37 + 11) % 288 for i in range(23)]


def engines(pair: TinyPair) -> tuple[Engine, Engine]:
    """The pair in float32, compiled and in torch."""
    compiled = new_engine(pair, dtype="float32", kernels="native")
    plain = new_engine(pair, dtype="float32", kernels="torch")
    assert type(compiled.pair.target) is not type(plain.pair.target)
    assert type(compiled.pair.draft) is not type(plain.pair.draft)
    return compiled, plain


def read(engine: Engine, lane: int, rows: int) -> tuple[Tensor, Tensor]:
    """Logits and features of every token of TOKENS, read ``rows`` at a time."""
    memory = engine.memory
    runner = TargetRunner(
        engine.pair.target, memory.target, memory.target_rope, engine.spec, engine.graphs
    )
    logits, features = [], []
    with torch.inference_mode():
        for start in range(0, len(TOKENS), rows):
            scores = runner.prefill(lane, start, TOKENS[start : start + rows], last=True)
            logits.append(scores.logits)
            features.append(scores.features)
    return torch.cat(logits)[-1], torch.cat(features)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_product_is_right_and_no_row_depends_on_the_others(dtype: torch.dtype) -> None:
    library = native().library
    assert library is not None
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(83, 40, generator=generator)
    matrix[5, 7] = 2.0**-30  # float16 has no such number
    matrix = matrix.to(dtype).float()
    x = torch.randn(19, 40, generator=generator)
    weight = Weight(matrix)
    assert weight.panels.dtype == dtype
    exact, alone = x.double() @ matrix.double().t(), None
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 13, 19):
        out = torch.full((rows, 83), float("nan"))
        library.multiply(byref(weight.c), at(x), c_int64(rows), at(out))
        torch.testing.assert_close(out.double(), exact[:rows], atol=1e-5, rtol=1e-5)
        alone = out[0] if alone is None else alone
        assert torch.equal(out[0], alone)


@pytest.mark.parametrize("name", SHAPES)
def test_logits_and_features_are_those_of_torch(tmp_path: Path, name: str) -> None:
    pair = write_pair(tmp_path, SHAPES[name], skilled=False, noise=1.0)
    compiled, plain = engines(pair)
    for ours, theirs in zip(read(compiled, 1, 23), read(plain, 1, 23), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7])
def test_rows_together_are_bit_for_bit_rows_alone(tmp_path: Path, rows: int) -> None:
    compiled, _ = engines(write_pair(tmp_path, skilled=False, noise=1.0, stored=torch.float16))
    whole, part = read(compiled, 0, 23), read(compiled, 2, rows)
    assert torch.equal(whole[0], part[0])
    assert torch.equal(whole[1], part[1])


@pytest.mark.parametrize(
    "spec",
    [
        SpecConfig.baseline(),
        SpecConfig.chain(1),
        SpecConfig.chain(5),
        SpecConfig(num_steps=4, topk=3, num_draft_tokens=12),
    ],
    ids=lambda s: s.point_id,
)
@pytest.mark.parametrize("batch", [1, 3])
def test_tokens_and_accept_length_are_those_of_torch(spec: SpecConfig, batch: int) -> None:
    asked = [new_request(f"r{i}", p) for i, p in enumerate(prompts(4))]
    results = []
    for kernels in ("native", "torch"):
        engine = new_engine(dtype="float32", kernels=kernels)
        engine.configure(spec, batch)
        outcomes = drive(engine, asked)
        results.append(([o.ids for o in outcomes], accept_length(outcomes)))
    assert results[0] == results[1]
    if not spec.is_baseline:
        assert results[0][1] > 1.2


def test_scores_that_are_not_finite_stay_so(tmp_path: Path) -> None:
    compiled, _ = engines(write_pair(tmp_path, skilled=False))
    compiled.pair.target.embedding[TOKENS[3]] = float("nan")
    logits, _ = read(compiled, 0, 23)
    assert not bool(torch.isfinite(logits).any())
