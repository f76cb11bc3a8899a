"""Every kind of draft against plain re-implementations of the published rules (T12)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from specbench.checkpoint import read_draft, read_target
from specbench.checkpoint.writers import LAYOUTS, write_draft
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.extend import extend_lane
from specbench.engine.kv_cache import turn_run
from specbench.engine.memory import Memory
from specbench.engine.models.base import RowKind
from specbench.engine.models.draft_stack import StackedDraft
from specbench.engine.pair import ModelPair
from tests.drafts import KINDS, Kind, rules_of, write_kind
from tests.drive import TREES, drive, new_engine, new_request, prompts
from tests.reference import load
from tests.reference_draft import combine, forward

DEMO = Path(__file__).parents[4] / "specbench" / "demo"
ROWS, STEPS = 9, 4


def reference(pair_folder: Path, kind: Kind, tokens: list[int], features: Tensor) -> list[Tensor]:
    """Logits of the last row after 0, 1, ... STEPS recurrent rows, all recomputed each time."""
    pair = write_kind(pair_folder, kind)
    target, draft = load(pair.target), load(pair.draft)
    rules = rules_of(kind, pair, target["model.norm.weight"])
    h, rows, found = combine(draft, rules, features.double()), list(tokens), []
    for _ in range(STEPS + 1):
        embedded = target["model.embed_tokens.weight"][torch.tensor(rows)]
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
    classic = kind.layers == 1 and not kind.latent and not kind.last_hidden
    assert isinstance(loaded.draft, StackedDraft) is not classic
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


@pytest.mark.parametrize("kind", [KINDS[6], KINDS[10], KINDS[12]], ids=lambda kind: kind.name)
@pytest.mark.parametrize("spec", [SpecConfig.chain(3), TREES[3]], ids=lambda s: s.point_id)
def test_batched_and_alone_accept_the_same(tmp_path: Path, kind: Kind, spec: SpecConfig) -> None:
    """Lanes of different lengths, so padded rows and masks of the batch matter."""
    pair = write_kind(tmp_path, kind)
    asked = [new_request(f"r{i}", p) for i, p in enumerate(prompts(3))]
    plain = new_engine(pair)
    plain.configure(SpecConfig.baseline(), 1)
    expected = [o.ids for o in drive(plain, asked)]
    traces = []
    for lanes in (1, 3):
        engine = new_engine(pair)
        engine.configure(spec, lanes)
        outcomes = drive(engine, asked)
        assert [o.ids for o in outcomes] == expected
        traces.append([[s.accepted for s in o.steps] for o in outcomes])
    assert traces[0] == traces[1]
