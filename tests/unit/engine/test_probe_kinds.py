"""The probe's own forward on drafts with norms, biases and scaled rotations (engine-spec 2.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.wiring import Tap
from tests.drafts import KINDS, Kind, rules_of, write_kind
from tests.drive import new_engine, new_request, prompts
from tests.reference import load
from tests.reference_draft import combine, forward

PROBED = [k for k in KINDS if k.layers == 1 and not (k.latent or k.last_hidden or k.hidden)]
STEPS = 2


class Recording(ProbeDraft):
    """Keeps the logits of every step."""

    seen: list[Tensor]

    def finish(self, *given: Any) -> tuple[Tensor, Tensor]:
        state, logits = super().finish(*given)
        self.seen.append(logits)
        return state, logits


@pytest.mark.parametrize("kind", PROBED, ids=lambda kind: kind.name)
def test_scores_are_those_of_the_reference(tmp_path: Path, kind: Kind) -> None:
    pair = write_kind(tmp_path, kind)
    engine = new_engine(pair)
    asked = [new_request("r", prompts(2)[1], max_tokens=6)]
    captured = capture(engine.pair, greedy_texts(engine.pair, asked, past=STEPS + 1))
    draft = Recording.load(engine.pair, pair.draft)
    assert isinstance(draft, Recording)
    draft.seen = []
    draft.score(captured, draft.claimed, STEPS)
    expected = reference(pair.draft, pair.target, captured, rules_of_pair(kind, pair))
    for mine, theirs in zip(draft.seen, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


def rules_of_pair(kind: Kind, pair: Any) -> Any:
    return rules_of(kind, pair, load(pair.target)["model.norm.weight"])


def reference(draft_dir: Path, target_dir: Path, captured: Capture, rules: Any) -> list[Tensor]:
    """Logits of steps 1 and 2 at every position of the only reply, all recomputed for each."""
    draft, table = load(draft_dir), load(target_dir)["model.embed_tokens.weight"]
    parts = [captured.features[Tap.RESIDUAL, k] for k in (1, 2, 3)]
    features, sample = torch.cat(parts, 1), captured.samples[0]
    tokens = torch.tensor(sample.tokens)
    found: list[list[Tensor]] = [[], []]
    for row in range(sample.prompt_len - 1, sample.prompt_len + sample.output_len - 2):
        h = combine(draft, rules, features[: row + 1])
        for step in range(STEPS):
            state, logits = forward(draft, rules, table[tokens[1 : row + 2 + step]], h)
            found[step].append(logits[-1])
            h = torch.cat([h, state[-1:]])
    return [torch.stack(step) for step in found]
