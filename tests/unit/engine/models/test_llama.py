"""The target against transformers' Llama: logits and every captured residual stream."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from specbench.checkpoint import read_target
from specbench.config import SpecConfig
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.kv_cache import KVPool
from specbench.engine.models.layers import Rope
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.weights import load_tensors
from specbench.engine.runner import TargetRunner
from tests.tiny import TinyShape, write_pair

EAGER = Graphs(torch.device("cpu"), GraphMode.EAGER)
SHAPES = {
    "grouped": TinyShape(),
    "tied": dataclasses.replace(TinyShape(), tied=True),
    "no groups": dataclasses.replace(TinyShape(), heads=2),
    "explicit head_dim, eps, theta": TinyShape(
        hidden=48, heads=4, kv_heads=1, head_dim=32, eps=1e-3, theta=500.0
    ),
}


def load(
    folder: Path, capture: tuple[int, ...], dtype: torch.dtype
) -> tuple[LlamaTarget, KVPool, Rope]:
    spec, opened = read_target(folder)
    target = LlamaTarget(spec, load_tensors(opened, dtype, torch.device("cpu")), capture)
    pool = KVPool(
        layers=spec.n_layers,
        lanes=2,
        kv_heads=spec.shape.kv_heads,
        head_dim=spec.shape.head_dim,
        capacity=128,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    return target, pool, Rope(spec.rope, spec.shape.head_dim, 128, dtype, torch.device("cpu"))


@pytest.mark.parametrize("name", SHAPES)
def test_logits_and_features_agree_with_transformers(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    shape = SHAPES[name]
    pair = write_pair(tmp_path, shape, skilled=False, noise=1.0)
    capture = tuple(range(shape.layers + 1))
    target, pool, rope = load(pair.target, capture, torch.float32)
    model = transformers.LlamaForCausalLM.from_pretrained(pair.target, dtype=torch.float32)
    tokens = [(i * 37 + 11) % shape.vocab for i in range(23)]
    with torch.inference_mode():
        runner = TargetRunner(target, pool, rope, SpecConfig.baseline(), EAGER)
        scores = runner.prefill(1, 0, tokens, last=True)
        theirs = model(torch.tensor([tokens]), output_hidden_states=True)
    torch.testing.assert_close(scores.logits[0], theirs.logits[0, -1], atol=1e-4, rtol=1e-4)
    mine = scores.features.view(len(tokens), len(capture), shape.hidden)
    for k in range(shape.layers):
        expected = theirs.hidden_states[k][0]
        torch.testing.assert_close(mine[:, k], expected, atol=1e-4, rtol=1e-4)
    last = model.model.norm(mine[:, shape.layers])  # transformers norms the last entry
    torch.testing.assert_close(last, theirs.hidden_states[-1][0], atol=1e-4, rtol=1e-4)


def test_chunks_give_what_one_forward_gives(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, skilled=False)
    target, pool, rope = load(pair.target, (1, 3), torch.float64)
    tokens = [(i * 37 + 11) % 288 for i in range(20)]
    with torch.inference_mode():
        runner = TargetRunner(target, pool, rope, SpecConfig.baseline(), EAGER)
        whole = runner.prefill(0, 0, tokens, last=True)
        parts = [
            runner.prefill(1, at, tokens[at : at + 6], last=at + 6 >= 20) for at in (0, 6, 12, 18)
        ]
    torch.testing.assert_close(whole.logits, parts[-1].logits)
    torch.testing.assert_close(whole.features, torch.cat([p.features for p in parts]))
    torch.testing.assert_close(pool.keys[:, 0, :, :20], pool.keys[:, 1, :, :20])


def test_nothing_is_captured_for_a_lone_target(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, skilled=False)
    target, _, _ = load(pair.target, (), torch.float32)
    assert target.new_features(4) is None
    assert target.read_bytes(1) > 0
