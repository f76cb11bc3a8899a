"""Drafting against the plain reference, and the invariants I2 to I5 of engine-spec 13.2."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.batch import BatchInputs, Sequence
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.kv_cache import KVPool
from specbench.engine.models.base import RowKind
from specbench.engine.runner import PREFILL_ROWS
from tests.drive import TREES, accept_length, drive, new_engine, new_request, prompts
from tests.reference import Reference, rms
from tests.tiny import TinyPair, shared_pair, write_pair


def drafter_of(engine: Engine) -> Eagle3Drafter:
    assert isinstance(engine.drafter, Eagle3Drafter)
    return engine.drafter


def draft_pool(engine: Engine) -> KVPool:
    assert engine.memory.draft is not None
    return engine.memory.draft


def tokens_of(sequence: Sequence) -> list[int]:
    return [*sequence.prompt, *sequence.output]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_chains_are_those_of_the_reference(batch_size: int) -> None:
    reference = Reference(shared_pair())
    engine = new_engine()
    engine.configure(SpecConfig.chain(4), batch_size)
    for i, prompt in enumerate(prompts(batch_size)):
        engine.submit(new_request(f"r{i}", prompt))
    for step in range(batch_size + 4):
        if step >= batch_size:
            with torch.inference_mode():
                batch = BatchInputs(4, engine.pair.device).batch(engine.scheduler.running)
                tree = engine.drafter.propose(batch)
            for lane, sequence in enumerate(batch.sequences):
                tokens = tokens_of(sequence)
                assert tree.tokens[lane].tolist() == [tokens[-1], *reference.chain(tokens, 4)]
        engine.step()


@pytest.mark.parametrize("batch_size", [1, 2])
def test_trees_score_every_node_as_its_own_chain(batch_size: int) -> None:
    """Exact ancestor attention: a node's score is the product of probabilities along its path,
    each recomputed from scratch for that path alone."""
    reference = Reference(shared_pair())
    engine = new_engine()
    spec = SpecConfig(num_steps=4, topk=3, num_draft_tokens=20)
    engine.configure(spec, batch_size)
    for i, prompt in enumerate(prompts(batch_size)):
        engine.submit(new_request(f"r{i}", prompt))
    for _ in range(batch_size + 2):
        engine.step()
    with torch.inference_mode():
        batch = BatchInputs(4, engine.pair.device).batch(engine.scheduler.running)
        tree = engine.drafter.propose(batch)
    ids = reference.target_ids.tolist()
    for lane, sequence in enumerate(batch.sequences):
        nodes, parents = tree.tokens[lane].tolist(), tree.parents[lane].tolist()
        assert max(tree.depths[lane].tolist()) == 4
        for node in range(1, len(nodes)):
            path: list[int] = []
            up = parents[node]
            while up > 0:
                path.insert(0, nodes[up])
                up = parents[up]
            logits = reference.draft_logits(tokens_of(sequence), path)
            order = torch.sort(logits, descending=True, stable=True)[1].tolist()
            assert ids[order[int(tree.ranks[lane, node])]] == nodes[node]


@pytest.mark.parametrize("spec", [SpecConfig.chain(3), TREES[3]], ids=lambda s: s.point_id)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_rows_after_every_verify_are_true(spec: SpecConfig, batch_size: int) -> None:
    """I3: row i's token is x[i+1]. I5: its feature is the target's at i. I4: its key and value are
    those of a computation from scratch."""
    engine = new_engine()
    engine.configure(spec, batch_size)
    reference = Reference(shared_pair())
    rows: dict[int, dict[int, tuple[int, Tensor]]] = {}

    def observe(lane: int, start: int, tokens: list[int], features: Tensor) -> None:
        for i, token in enumerate(tokens):
            rows.setdefault(lane, {})[start + i] = (token, features[i].clone())

    drafter_of(engine).observer = observe
    for i, prompt in enumerate(prompts(batch_size)):
        engine.submit(new_request(f"r{i}", prompt, 200))
    for _ in range(batch_size + 8):
        engine.step()
    pool = draft_pool(engine)
    for lane, sequence in enumerate(engine.scheduler.running):
        tokens, committed = tokens_of(sequence), sequence.committed
        features = reference.features(tokens[:-1])
        assert [rows[lane][i][0] for i in range(committed)] == tokens[1:]
        seen = torch.stack([rows[lane][i][1] for i in range(committed)])
        torch.testing.assert_close(seen, features)
        keys, values = scratch_rows(engine, tokens, features)
        torch.testing.assert_close(pool.keys[0, lane, :, :committed], keys)
        torch.testing.assert_close(pool.values[0, lane, :, :committed], values)


def scratch_rows(engine: Engine, tokens: list[int], features: Tensor) -> tuple[Tensor, Tensor]:
    """Draft keys and values of a whole sequence, from one extend into fresh slots."""
    fresh = new_engine()
    fresh.configure(engine.spec, 1)
    with torch.inference_mode():
        fresh.drafter.prefill(0, 0, tokens[1:], features, last=True)
    pool, rows = draft_pool(fresh), len(tokens) - 1
    return pool.keys[0, 0, :, :rows], pool.values[0, 0, :, :rows]


def test_a_prompt_in_chunks_fills_the_draft_as_one_piece_does() -> None:
    """The last row of a chunk takes the next prompt token, not the target's guess (2.8)."""
    engine = new_engine()
    engine.configure(SpecConfig.chain(2), 1)
    prompt = [(i * 11 + 3) % 250 for i in range(PREFILL_ROWS + 40)]
    engine.submit(new_request("long", prompt, 8))
    engine.step()
    engine.step()
    (sequence,) = engine.scheduler.running
    tokens = tokens_of(sequence)
    features = Reference(shared_pair()).features(tokens[:-1])
    keys, _ = scratch_rows(engine, tokens, features)
    torch.testing.assert_close(draft_pool(engine).keys[0, 0, :, : len(prompt)], keys)


def rewrite(pair: TinyPair, folder: Path, config: dict[str, object], **tensors: Tensor) -> TinyPair:
    """The pair with another draft: config keys and tensors replaced or added."""
    draft = folder / "draft"
    draft.mkdir(parents=True)
    old = json.loads((pair.draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps({**old, **config}))
    save_file(
        {**load_file(pair.draft / "model.safetensors"), **tensors}, draft / "model.safetensors"
    )
    return dataclasses.replace(pair, draft=draft)


class Flagged(Reference):
    """The reference with the optional norms of a draft."""

    flags: frozenset[str] = frozenset()

    def features(self, tokens: list[int]) -> Tensor:
        g = super().features(tokens)
        eps, width = self.shape.eps, self.shape.hidden
        if "norm_before_fc" in self.flags:
            g = rms(g, self.d["input_norm.weight"], eps)
        if "fc_norm" in self.flags:
            parts = torch.split(g, width, -1)
            g = torch.cat(
                [rms(p, self.d[f"fc_norm.{j}.weight"], eps) for j, p in enumerate(parts)], -1
            )
        return g

    def layer(
        self, tokens: Tensor, hidden: Tensor, positions: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor]:
        if "norm_before_residual" in self.flags:
            norm = self.d["midlayer.hidden_norm.weight"]
            normed = rms(hidden, norm, self.shape.eps)
            plain, _ = super().layer(tokens, hidden, positions, seen)
            # the attention half sees the same input; only the residual differs
            out, logits = self._from(plain, hidden, normed, tokens, positions, seen)
        else:
            out, logits = super().layer(tokens, hidden, positions, seen)
        if "norm_output" in self.flags:
            out = rms(out, self.d["norm.weight"], self.shape.eps)
        return out, logits

    def _from(
        self,
        _: Tensor,
        hidden: Tensor,
        normed: Tensor,
        tokens: Tensor,
        positions: Tensor,
        seen: Tensor,
    ) -> tuple[Tensor, Tensor]:
        from tests.reference import attention, mlp

        d, at, eps = self.d, "midlayer", self.shape.eps
        e = rms(self.embedding[tokens], d[f"{at}.input_layernorm.weight"], eps)
        x = torch.cat([e, rms(hidden, d[f"{at}.hidden_norm.weight"], eps)], -1)
        r = normed + attention(d, at, self.shape, x, positions, seen)
        out = r + mlp(d, at, rms(r, d[f"{at}.post_attention_layernorm.weight"], eps))
        return out, rms(out, d["norm.weight"], eps) @ d["lm_head.weight"].T


@pytest.mark.parametrize(
    "flag", ["norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"]
)
def test_norm_flags(tmp_path: Path, flag: str) -> None:
    pair = write_pair(tmp_path / "base", skilled=False, noise=1.0)
    width, extra = pair.shape.hidden, {}
    generator = torch.Generator().manual_seed(1)
    if flag == "norm_before_fc":
        extra = {"input_norm.weight": 1 + 0.3 * torch.randn(3 * width, generator=generator)}
    if flag == "fc_norm":
        extra = {
            f"fc_norm.{j}.weight": 1 + 0.3 * torch.randn(width, generator=generator)
            for j in range(3)
        }
    flagged = rewrite(pair, tmp_path / flag, {flag: True}, **extra)
    engine = new_engine(flagged)
    engine.configure(SpecConfig.chain(3), 1)
    reference = Flagged(flagged)
    reference.flags = frozenset([flag])
    engine.submit(new_request("r", prompts(2)[1]))
    engine.step()
    for _ in range(3):
        with torch.inference_mode():
            batch = BatchInputs(4, engine.pair.device).batch(engine.scheduler.running)
            tree = engine.drafter.propose(batch)
        tokens = tokens_of(batch.sequences[0])
        assert tree.tokens[0].tolist() == [tokens[-1], *reference.chain(tokens, 3)]
        engine.step()


def test_an_own_embedding_is_used_unless_sharing_is_forced(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "base")
    own = torch.randn(288, 64, generator=torch.Generator().manual_seed(3))
    other = rewrite(pair, tmp_path / "own", {}, **{"embed_tokens.weight": own})
    policies, lengths = [], []
    for forced in (False, True):
        engine = new_engine(other, force_share_embed=forced)
        assert engine.pair.draft_spec is not None
        policies.append(engine.pair.draft_spec.embed_policy)
        engine.configure(SpecConfig.chain(3), 1)
        asked = [new_request(f"r{i}", p) for i, p in enumerate(prompts(3))]
        lengths.append(accept_length(drive(engine, asked)))
    assert policies == [
        "own: it differs from the target's",
        "shared: force_share_embed, although its own differs",
    ]
    assert lengths[0] < lengths[1]


def test_a_skilled_draft_is_accepted() -> None:
    """The fixture has real skill, so that kept paths, moves and cuts are really exercised."""
    engine = new_engine()
    engine.configure(SpecConfig.chain(5), 1)
    asked = [new_request(f"r{i}", p, 40) for i, p in enumerate(prompts(4))]
    assert accept_length(drive(engine, asked)) > 2.0


def test_the_draft_reads_only_rows_of_the_right_width() -> None:
    engine = new_engine()
    draft = engine.pair.draft
    assert draft is not None
    with pytest.raises(Exception, match="width 64, but the draft reads 192"):
        draft.hidden(torch.zeros(1, 64, dtype=torch.float64), RowKind.TARGET_FEATURES)
    with pytest.raises(Exception, match="width 192, but the draft reads 64"):
        draft.hidden(torch.zeros(1, 192, dtype=torch.float64), RowKind.RECURRENT)
