"""Every family against transformers, against itself step by step, and over trees."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.batch import Batch, Sequence
from specbench.engine.models.base import Features, Span
from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.features import checked_features
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.moe import MoeFeedForward
from specbench.engine.tree import Tree
from specbench.errors import EngineError
from tests.drive import drive, new_engine, new_request, prompts
from tests.families import MODELS, load, written
from tests.tiny import write_pair

pytest.importorskip("transformers")
TOKENS = [(i * 37 + 11) % 288 for i in range(23)]


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_all_features_agree_with_transformers(name: str) -> None:
    folder, model = written(name)
    loaded = load(folder, torch.float32)
    with torch.inference_mode():
        runner = loaded.runner(loaded.pool())
        scores = runner.prefill(1, 0, TOKENS, last=True)
        theirs = model(torch.tensor([TOKENS]), output_hidden_states=True)
        n, width = loaded.spec.n_layers, loaded.spec.shape.hidden
        mine = scores.features.view(len(TOKENS), n + 1, width)
        torch.testing.assert_close(scores.logits[0], theirs.logits[0, -1], atol=1e-4, rtol=1e-4)
        for k in range(n):
            torch.testing.assert_close(mine[:, k], theirs.hidden_states[k][0], atol=1e-4, rtol=1e-4)
        last = model.model.norm(mine[:, n])  # transformers norms the last entry
        torch.testing.assert_close(last, theirs.hidden_states[-1][0], atol=1e-4, rtol=1e-4)
        every = loaded.target.logits(mine[:, n])
        torch.testing.assert_close(every, theirs.logits[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_steps_give_what_one_forward_gives(name: str) -> None:
    """Chunks of a prompt, then single tokens, in float64 where sums agree."""
    loaded = load(written(name)[0], torch.float64)
    with torch.inference_mode():
        pool = loaded.pool()
        runner = loaded.runner(pool)
        whole = runner.prefill(0, 0, TOKENS, last=True)
        cuts = [0, 7, 12, *range(13, 23)]
        parts = [
            runner.prefill(1, start, TOKENS[start:end], last=True)
            for start, end in itertools.pairwise([*cuts, 23])
        ]
    torch.testing.assert_close(torch.cat([part.features for part in parts]), whole.features)
    torch.testing.assert_close(parts[-1].logits, whole.logits)
    assert bool(pool.keys[:, 0, :, :23].any())


@pytest.mark.parametrize("columns", [None, 128])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_tree_nodes_score_as_the_ends_of_their_own_chains(
    name: str, lanes: int, columns: int | None
) -> None:
    loaded = load(written(name)[0], torch.float64)
    prompts = [TOKENS[:17], TOKENS[4:13]][:lanes]
    with torch.inference_mode():
        pool = loaded.pool()
        runner = loaded.runner(pool, SpecConfig(num_steps=3, topk=2, num_draft_tokens=7))
        for lane, prompt in enumerate(prompts):
            runner.prefill(lane, 0, prompt, last=True)
        tree, batch = a_tree(lanes), a_batch([len(p) for p in prompts], columns)
        scores = runner.verify(batch, tree)
        for lane, prompt in enumerate(prompts):
            for node, path in enumerate(PATHS):
                chain = [*prompt, *(int(tree.tokens[lane, j]) for j in path)]
                alone = loaded.runner(loaded.pool()).prefill(0, 0, chain, last=True)
                row = lane * len(PATHS) + node
                torch.testing.assert_close(scores.logits[row], alone.logits[0])
                torch.testing.assert_close(scores.features[row], alone.features[-1])
        # the accepted path is kept, and the sequence goes on as if it had never branched
        accepted = PATHS[5]
        for lane, prompt in enumerate(prompts):
            pool.keep(lane, len(prompt), accepted)
            chain = [*prompt, *(int(tree.tokens[lane, j]) for j in accepted), 99]
            then = runner.prefill(lane, len(chain) - 1, chain[-1:], last=True)
            alone = loaded.runner(loaded.pool()).prefill(0, 0, chain, last=True)
            torch.testing.assert_close(then.logits, alone.logits)


# A node's slot is not its depth: the path 0, 3, 4, 5 has a column of slot 3 at depth 1.
PARENTS = [-1, 0, 0, 0, 3, 4, 1]
PATHS = [[0], [0, 1], [0, 2], [0, 3], [0, 3, 4], [0, 3, 4, 5], [0, 1, 6]]


def a_tree(lanes: int) -> Tree:
    """Seven nodes, three levels, another token in each node of each lane."""
    seen = torch.zeros(1, 7, 7, dtype=torch.bool)
    for node, path in enumerate(PATHS):
        seen[0, node, path] = True
    return Tree(
        tokens=(torch.arange(7 * lanes) * 29 + 3).view(lanes, 7) % 288,
        parents=torch.tensor([PARENTS]).expand(lanes, -1),
        depths=torch.tensor([[len(path) - 1 for path in PATHS]]).expand(lanes, -1),
        ranks=torch.zeros(lanes, 7, dtype=torch.int64),
        seen=seen.expand(lanes, -1, -1),
        depth=3,
        chain=False,
    )


def a_batch(starts: list[int], columns: int | None) -> Batch:
    """Lanes with so many committed tokens; who owns them plays no part in a forward."""
    return Batch(
        sequences=[cast("Sequence", None)] * len(starts),
        starts=starts,
        roots=torch.zeros(len(starts), dtype=torch.int64),
        start_tensor=torch.tensor(starts),
        columns=columns,
    )


@pytest.mark.parametrize("name", ["qwen2 sliding", "qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_speculation_changes_no_token(name: str, tmp_path: Path) -> None:
    pair = replace(write_pair(tmp_path, skilled=False), target=written(name)[0])
    engine = new_engine(pair, max_batch_size=3)
    assert isinstance(engine.pair.target, DecoderTarget)
    assert engine.pair.device_facts["kernels"] == "torch"
    asked = [new_request(f"r{i}", prompt, 12) for i, prompt in enumerate(prompts(3))]
    plain = [outcome.ids for outcome in drive(engine, asked)]
    assert all(plain)
    for spec in (SpecConfig.chain(3), SpecConfig(num_steps=3, topk=2, num_draft_tokens=6)):
        for size in (1, 3):  # the exact-length form, and lanes of different lengths
            engine.configure(spec, size)
            assert [outcome.ids for outcome in drive(engine, asked)] == plain


def test_half_precision_goes_through_the_fused_call() -> None:
    """bfloat16 stays near float32: same argmax in most rows, features within 2 % of their size."""
    folder = written("qwen3")[0]
    exact, half = load(folder, torch.float32), load(folder, torch.bfloat16)
    with torch.inference_mode():
        a = exact.runner(exact.pool()).prefill(0, 0, TOKENS, last=True)
        b = half.runner(half.pool()).prefill(0, 0, TOKENS, last=True)
    error = (a.features - b.features.float()).square().mean().sqrt()
    assert b.features.dtype == torch.bfloat16
    assert float(error / a.features.square().mean().sqrt()) < 0.02


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_grouped_experts_agree_with_one_after_another(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form that runs in half precision on a CUDA device, here in float32."""
    target = load(written(name)[0], torch.float32).target
    moe = next(m for m in cast("DecoderTarget", target).modules() if isinstance(m, MoeFeedForward))
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(0))
    chosen, weights = moe.router(x)
    with torch.inference_mode():
        grouped = moe.experts.grouped(x, chosen, weights)
        torch.testing.assert_close(grouped, moe.experts(x, chosen, weights), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            moe.experts.dense(x, chosen, weights), grouped, atol=1e-5, rtol=1e-5
        )


class Forgetful:
    """A wrapper that passes everything on but the room for features, as real ones have done."""

    def __init__(self, inner: DecoderTarget | LlamaTarget) -> None:
        self.inner, self.windowed, self.capture = inner, inner.windowed, inner.capture
        self.new_features, self.logits = inner.new_features, inner.logits

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        return self.inner.forward(tokens, span, batch, None)


@pytest.mark.parametrize("name", ["llama3", "qwen3"])
def test_a_wrapper_that_drops_features_fails_at_its_first_forward(name: str) -> None:
    loaded = load(written(name)[0], torch.float32)
    loaded.target = cast("DecoderTarget", Forgetful(loaded.target))
    with torch.inference_mode(), pytest.raises(EngineError, match=r"5 layers of width 64"):
        loaded.runner(loaded.pool()).prefill(0, 0, TOKENS, last=True)


def test_features_of_another_width_are_refused() -> None:
    checked_features(None, (), 3, 64)
    part = Features(torch.zeros(3, 64), {2: torch.zeros(3, 64)})
    checked_features(part, (2,), 3, 64)
    with pytest.raises(EngineError, match=r"shape \(3, 64\) .* \(3, 128\): 1 layers of width 128"):
        checked_features(part, (2,), 3, 128)
