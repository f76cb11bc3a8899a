"""The worked timeline of engine-spec 2.5, value for value: K = 3, a prompt of five tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.models.base import RowKind, Span
from specbench.engine.models.layers import Rope
from tests.drive import new_engine, new_request


@dataclass(slots=True)
class Row:
    """One recorded row: model, token, position, slot, and the vector that a draft row read."""

    model: str
    token: int
    position: int
    slot: int
    kind: RowKind | None = None
    vector: Tensor | None = None


class Recorder:
    """Wraps both models of an engine and writes down every row that they run."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[Row] = []
        self.features: list[Tensor] = []
        self.states: list[Tensor] = []
        self._kind: tuple[RowKind, Tensor] | None = None
        memory, draft, target = engine.memory, engine.pair.draft, engine.pair.target
        assert draft is not None
        assert memory.draft_rope is not None
        forward, hidden, remember, guess = target.forward, draft.hidden, draft.remember, draft.guess
        draft_rope = memory.draft_rope

        def record_forward(tokens: Tensor, span: Span, batch: int, features: Any) -> Tensor:
            self._write("target", tokens, span, memory.target_rope)
            out = forward(tokens, span, batch, features)
            self.features.append(features.tensor.clone())
            return out

        def record_hidden(vectors: Tensor, kind: RowKind) -> Tensor:
            self._kind = (kind, vectors.clone())
            return hidden(vectors, kind)

        def record_remember(tokens: Tensor, h: Tensor, span: Span, batch: int) -> Tensor:
            self._write("draft", tokens, span, draft_rope)
            return remember(tokens, h, span, batch)

        def record_guess(*arguments: Any) -> tuple[Tensor, Tensor]:
            state, logits = guess(*arguments)
            self.states.append(state.clone())
            return state, logits

        monkeypatch.setattr(target, "forward", record_forward)
        monkeypatch.setattr(draft, "hidden", record_hidden)
        monkeypatch.setattr(draft, "remember", record_remember)
        monkeypatch.setattr(draft, "guess", record_guess)

    def _write(self, model: str, tokens: Tensor, span: Span, rope: Rope) -> None:
        first = span.value_slots[0]
        head_dim = first.shape[-1]
        slot = first.storage_offset() % (rope.length * head_dim) // head_dim
        kind, vectors = self._kind or (None, None)
        for i, token in enumerate(tokens.tolist()):
            turn = span.turn_k[i, 0]
            position = int((rope.keys[:, 0] - turn).abs().sum(-1).argmin())
            row = Row(model, token, position, slot + i)
            if model == "draft":
                row.kind, row.vector = kind, None if vectors is None else vectors[i]
            self.rows.append(row)
        if model == "draft":
            self._kind = None


def first_cycle(monkeypatch: pytest.MonkeyPatch) -> tuple[Recorder, list[int], list[int]]:
    """Drive prompts until a first cycle accepts d1 and rejects d2, as the timeline does."""
    engine = new_engine()
    engine.configure(SpecConfig.chain(3), 1)
    recorder = Recorder(engine, monkeypatch)
    for seed in range(60):
        recorder.rows.clear()
        recorder.features.clear()
        recorder.states.clear()
        prompt = [(seed * 17 + i * 43) % 250 for i in range(5)]
        handle = engine.submit(new_request("timeline", prompt))
        engine.step()
        (sequence,) = engine.scheduler.running
        assert sequence.committed == 5
        assert len(sequence.output) == 1  # x5 is verified but not yet in the target's cache
        (emission,) = engine.step()
        assert emission.trace is not None
        if emission.trace.accepted == 1:
            assert sequence.committed == 7
            tokens = [*prompt, *sequence.output]
            engine.step()
            engine.cancel(handle)
            return recorder, tokens, sequence.output
        engine.cancel(handle)
    raise AssertionError("no prompt accepts exactly one draft")


def test_worked_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, x, _ = first_cycle(monkeypatch)
    rows = recorder.rows
    seen = [(r.model, r.position, r.slot) for r in rows[:21]]
    prefill, extend, decode = slice(0, 5), slice(5, 10), slice(10, 12)
    verify, after, again = slice(12, 16), slice(16, 18), slice(18, 19)

    # Target prefill: x0..x4 at positions 0..4
    assert seen[prefill] == [("target", i, i) for i in range(5)]
    assert [r.token for r in rows[prefill]] == x[:5]
    g = recorder.features[0]

    # Draft extend (prefill): (x1,g0) (x2,g1) (x3,g2) (x4,g3) (x5,g4) at 0..4
    assert seen[extend] == [("draft", i, i) for i in range(5)]
    assert [r.token for r in rows[extend]] == x[1:6]
    for i, row in enumerate(rows[extend]):
        assert row.kind is RowKind.TARGET_FEATURES
        assert row.vector is not None
        assert torch.equal(row.vector, g[i])

    # Draft decodes: (d1, s4) at 5 and (d2, s5) at 6, in speculative slots
    assert seen[decode] == [("draft", 5, 5), ("draft", 6, 6)]
    for row, state in zip(rows[decode], recorder.states[:2], strict=True):
        assert row.kind is RowKind.RECURRENT
        assert row.vector is not None
        assert torch.equal(row.vector, state[0])

    # Target verify: x5, d1, d2, d3 at 5..8
    assert seen[verify] == [("target", i, i) for i in (5, 6, 7, 8)]
    d1, d2 = rows[10].token, rows[11].token
    assert [r.token for r in rows[verify]][:3] == [x[5], d1, d2]
    assert d1 == x[6]
    assert d2 != x[7]
    verified = recorder.features[1]

    # Draft extend after verify: (x6,G5) (x7,G6) at 5, 6, overwriting the speculative rows
    assert seen[after] == [("draft", 5, 5), ("draft", 6, 6)]
    assert [r.token for r in rows[after]] == x[6:8]
    for i, row in enumerate(rows[after]):
        assert row.kind is RowKind.TARGET_FEATURES
        assert row.vector is not None
        assert torch.equal(row.vector, verified[i])

    # The next drafting starts at position 7
    assert seen[again] == [("draft", 7, 7)]


def test_forwards_per_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """One extend and K - 1 decodes; the first draft token is a by-product of the extend."""
    recorder, _, _ = first_cycle(monkeypatch)
    kinds = [r.kind for r in recorder.rows if r.model == "draft"]
    cycle = kinds[5:9]
    assert cycle == [RowKind.RECURRENT] * 2 + [RowKind.TARGET_FEATURES] * 2
