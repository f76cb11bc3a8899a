"""Every kind of draft against plain re-implementations of the published rules (T12)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specbench.checkpoint import read_draft, read_target
from specbench.checkpoint.layouts import LAYOUTS
from specbench.checkpoint.writers import write_draft
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.batch import Batch
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.extend import extend_lane
from specbench.engine.kv_cache import turn_run
from specbench.engine.memory import Memory
from specbench.engine.models.base import RowKind
from specbench.engine.models.draft_stack import StackedDraft
from specbench.engine.pair import ModelPair
from specbench.engine.tree import Tree
from tests.drafts import KINDS, Kind, rules_of, write_kind
from tests.drive import TREES, Outcome, drive, new_engine, new_request, prompts
from tests.reference import load
from tests.reference_draft import combine, forward
from tests.skilled import SKILLED, write_skilled

DEMO = Path(__file__).parents[4] / "specbench" / "demo"
ROWS, STEPS = 9, 4
Seen = defaultdict[str, list[tuple[Tensor, Tensor, Tensor]]]


def reference(pair_folder: Path, kind: Kind, tokens: list[int], features: Tensor) -> list[Tensor]:
    """Logits of the last row after 0, 1, ... STEPS recurrent rows, all recomputed each time."""
    pair = write_kind(pair_folder, kind)
    target, draft = load(pair.target), load(pair.draft)
    rules = rules_of(kind, pair, target["model.norm.weight"])
    h, rows, found = combine(draft, rules, features.double()), list(tokens), []
    table = draft.get("embed_tokens.weight", target["model.embed_tokens.weight"])
    for _ in range(STEPS + 1):
        embedded = table[torch.tensor(rows)]
        state, logits = forward(draft, rules, embedded, h)
        found.append(logits[-1])
        rows.append(int(logits[-1].argmax() + draft["d2t"][logits[-1].argmax()]))
        h = torch.cat([h, state[-1:]])
    return found


def ours(pair: ModelPair, tokens: list[int], features: Tensor) -> list[Tensor]:
    """The same rows through the engine's draft: two prompt chunks, then decodes from its cache."""
    assert pair.draft is not None
    model, memory = pair.draft, Memory(pair, EngineConfig(max_len=64))
    pool, rope = memory.draft, memory.draft_rope
    assert pool is not None
    assert rope is not None
    extend_lane(model, pool, rope, 0, 0, tokens[:5], features[:5], guess=False)
    guess = extend_lane(model, pool, rope, 0, 5, tokens[5:], features[5:], guess=True)
    assert guess is not None
    state, logits = guess
    found = [logits[0]]
    for step in range(STEPS):
        token = model.target_ids[logits.argmax(-1)]
        span = pool.one_lane(0, ROWS + step, 1, turn_run(rope, ROWS + step, 1))
        hidden = model.hidden(state, RowKind.RECURRENT)
        state, logits = model.guess(
            model.remember(token, hidden, span, 1), span, model.scratch(1, 1)
        )
        found.append(logits[0])
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_parity(tmp_path: Path, kind: Kind) -> None:
    """fp32, 1e-4: target-feature rows in two chunks, then four recurrent rows."""
    pair = write_kind(tmp_path / "pair", kind)
    loaded = ModelPair.load(pair.target, pair.draft, EngineConfig(dtype="float32", max_len=64))
    assert loaded.draft is not None
    extras = kind.bias or kind.head_norm or kind.fc_bias
    classic = kind.layers == 1 and not (kind.latent or kind.last_hidden or extras)
    assert isinstance(loaded.draft, StackedDraft) is not classic
    compiled = loaded.device_facts["kernels"].startswith("native")
    assert ("draft_kernels" in loaded.device_facts) is (compiled and not classic)
    width = loaded.draft.spec.feature_width
    features = torch.randn(ROWS, width, generator=torch.Generator().manual_seed(7))
    tokens = [(11 * i + 3) % 250 for i in range(ROWS)]
    expected = reference(tmp_path / "again", kind, tokens, features)
    for mine, theirs in zip(ours(loaded, tokens, features), expected, strict=True):
        assert (mine.double() - theirs).abs().max() < 1e-4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_shipped_draft_from_every_format_gives_the_same_logits(
    tmp_path: Path, layout: str
) -> None:
    spec, folder = read_draft(DEMO / "draft", read_target(DEMO / "target")[0])
    write_draft(
        spec, folder, tmp_path / "d", layout=layout, layers=8, drop_ids=layout == "safeailab"
    )
    config = EngineConfig(dtype="float32", max_len=64)
    features = torch.randn(ROWS, spec.feature_width, generator=torch.Generator().manual_seed(3))
    tokens = [(13 * i + 5) % 4000 for i in range(ROWS)]
    ids = (2, 4, 7) if layout == "safeailab" else None
    found = [
        ours(ModelPair.load(DEMO / "target", draft, config, capture_ids=given), tokens, features)
        for draft, given in ((DEMO / "draft", None), (tmp_path / "d", ids))
    ]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.fixture(scope="module", params=SKILLED, ids=lambda kind: kind.name)
def skilled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """An engine in float64 on a pair whose draft is right often, so that lanes keep paths of
    different lengths and an extend has rows to pad."""
    return new_engine(write_skilled(tmp_path_factory.mktemp("skilled"), request.param))


def proposals(engine: Engine, spec: SpecConfig, lanes: int) -> tuple[Seen, list[Outcome]]:
    """What the draft made of each request, step by step: its state behind the extend, and its tree.

    Prompts of 2 to 27 tokens, replies of 9 to 24: lanes are refilled, and move, while others run.
    """
    engine.configure(spec, lanes)
    drafter, seen = engine.drafter, Seen(list)
    assert isinstance(drafter, Eagle3Drafter)
    propose = drafter.propose

    def watched(batch: Batch) -> Tree:
        states = drafter._state[: batch.size].clone()
        tree = propose(batch)
        for lane, sequence in enumerate(batch.sequences):
            parts = (
                states[lane],
                tree.tokens[lane].clone(),
                tree.seen.expand(batch.size, -1, -1)[lane],
            )
            seen[sequence.request.request_id].append(parts)
        return tree

    drafter.propose = watched  # type: ignore[method-assign]
    asked = [new_request(f"r{i}", p, 9 + 3 * i) for i, p in enumerate(prompts(6))]
    return seen, drive(engine, asked)


@pytest.mark.parametrize("spec", [SpecConfig.chain(3), TREES[3]], ids=lambda s: s.point_id)
def test_batched_and_alone_draft_the_same(skilled: Engine, spec: SpecConfig) -> None:
    """States to 1e-9 in float64, trees token by token: padding and masks of a batch leave no trace
    (semantics 18)."""
    (alone, one), (batched, three) = (proposals(skilled, spec, lanes) for lanes in (1, 3))
    assert [o.ids for o in one] == [o.ids for o in three]
    assert [[s.accepted for s in o.steps] for o in one] == [
        [s.accepted for s in o.steps] for o in three
    ]
    kept = {step.accepted for outcome in one for step in outcome.steps}
    assert kept == {0, 1, 2, 3}, "paths of every length, or the extend is not tried"
    assert alone.keys() == batched.keys()
    for name, steps in alone.items():
        assert len(steps) == len(batched[name])
        for (state, tokens, ancestors), (other, others, theirs) in zip(
            steps, batched[name], strict=True
        ):
            torch.testing.assert_close(state, other, rtol=0, atol=1e-9)
            assert torch.equal(tokens, others)
            assert torch.equal(ancestors, theirs)


def test_what_is_drafted_is_what_the_target_says_alone(skilled: Engine) -> None:
    """Greedy text with the draft, in a batch, is plain decoding's."""
    asked = [new_request(f"r{i}", p) for i, p in enumerate(prompts(3))]
    found = []
    for spec in (SpecConfig.baseline(), SpecConfig.chain(3), TREES[3]):
        skilled.configure(spec, 3)
        found.append([o.ids for o in drive(skilled, asked)])
    assert found[0] == found[1] == found[2]
