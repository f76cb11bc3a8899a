"""Faults to switch on in an engine, for tests of the doctor only (engine-spec 10.2).

Each replaces one part of a configured engine by a part that is wrong in one way; the engine itself
has no switch. Call ``inject`` after ``Engine.configure``, which builds the right parts again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from specbench.checkpoint.draft_names import by_canonical
from specbench.checkpoint.folder import open_folder
from specbench.engine.batch import Batch
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.faults_drafters import (
    ChunkBorder,
    DecodeShift,
    LateFeatures,
    NoExtend,
    SiblingsSeen,
    StaleFeatures,
    UnshiftedTokens,
    WrongRow,
)
from specbench.engine.models.base import Features, RowKind, Span
from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Rope
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.weights import load_tensors
from specbench.engine.probe_capture import norm_weights, rms_norm
from specbench.engine.runner import Scores, TargetRunner
from specbench.engine.tree import Tree
from specbench.errors import ConfigError
from specbench.modelspec import DraftSpec, RopeSpec

Slots = tuple[int, ...]


def inject(engine: Engine, name: str) -> None:
    """Make a configured engine wrong in the way ``name``.

    Raises:
        ConfigError: no such fault, or the engine is not configured to draft.
    """
    if name not in FAULTS:
        raise ConfigError(f"{name!r} is no fault.", expected=f"One of {', '.join(FAULTS)}.")
    if engine.spec.is_baseline:
        raise ConfigError(f"fault {name!r} needs an engine that drafts.")
    FAULTS[name](engine)


class _WrongCapture:
    """A target that hands out other layers than asked: ``slots`` after a prefill, ``verify`` after
    a verify; ``spoil`` may change a row of features [rows, A·H] in place."""

    def __init__(
        self,
        target: LlamaTarget | DecoderTarget,
        prefill: Slots,
        verify: Slots,
        spoil: Callable[[Tensor, Tensor], None] | None = None,
    ) -> None:
        self._target, self._slots, self._spoil = target, {False: prefill, True: verify}, spoil
        self.capture = target.capture
        self.verifying = False

    @property
    def windowed(self) -> bool:
        """As the target."""
        return self._target.windowed

    def new_features(self, rows: int) -> Features | None:
        """The right room."""
        return self._target.new_features(rows)

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        """The right forward, with the wrong streams handed out."""
        layers, width = range(self._target.spec.n_layers + 1), self._target.spec.shape.hidden
        whole = self._target.embedding.new_zeros(tokens.shape[0], len(layers) * width)
        parts = {k: whole[:, k * width : (k + 1) * width] for k in layers}
        hidden = self._target.forward(tokens, span, batch, Features(whole, parts))
        if features is not None:
            slots = self._slots[self.verifying]
            features.tensor.copy_(torch.cat([parts[k] for k in slots], -1))
            if self._spoil is not None:
                self._spoil(features.tensor, hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's scores."""
        return self._target.logits(hidden)


class _MarkedRunner(TargetRunner):
    """A runner that tells a wrong target which phase it is in."""

    wrong: _WrongCapture

    def verify(self, batch: Batch, tree: Tree) -> Scores:
        """One forward over all trees, with the target told that it is a verify."""
        self.wrong.verifying = True
        scores = super().verify(batch, tree)
        self.wrong.verifying = False
        return scores


def _capture(
    engine: Engine,
    prefill: Slots,
    verify: Slots | None = None,
    spoil: Callable[[Tensor, Tensor], None] | None = None,
) -> None:
    wrong = _WrongCapture(engine.pair.target, prefill, verify or prefill, spoil)
    memory = engine.memory
    runner = _MarkedRunner(wrong, memory.target, memory.target_rope, engine.spec, engine.graphs)
    runner.wrong = wrong
    engine.runner = runner


def _shifted(engine: Engine, by: int) -> Slots:
    return tuple(k + by for k in engine.pair.target.capture)


def _default(engine: Engine) -> Slots:
    n = engine.pair.target_spec.n_layers
    return 2, n // 2, n - 3


def _drafter(
    engine: Engine,
    kind: type[Eagle3Drafter] = Eagle3Drafter,
    *,
    model: Eagle3Draft | None = None,
    rope: Rope | None = None,
) -> None:
    """Replace the drafter by one of another class, model or rotation."""
    memory, own = engine.memory, engine.pair.draft
    assert own is not None
    assert memory.draft is not None
    assert memory.draft_rope is not None
    engine.drafter = kind(
        model or own, memory.draft, rope or memory.draft_rope, engine.spec, engine.graphs
    )


class _SkippedFc(Eagle3Draft):
    """fc is not applied: the last H values of the features are taken (F9)."""

    def hidden(self, vectors: Tensor, kind: RowKind) -> Tensor:
        """The end of the vectors, whatever they are."""
        return vectors[:, -self.spec.shape.hidden :]


def _changed_draft(engine: Engine, change: Callable[[Eagle3Draft], None]) -> None:
    """A copy of the draft with one attribute changed, sharing its weights."""
    own = engine.pair.draft
    assert own is not None
    copied = object.__new__(type(own))
    copied.__dict__.update(own.__dict__)
    change(copied)
    _drafter(engine, model=copied)


def _flipped(engine: Engine, change: Callable[[DraftSpec], DraftSpec]) -> None:
    """The draft built again from another reading of its config."""
    own, pair = engine.pair.draft, engine.pair
    assert own is not None
    tensors = load_tensors(open_folder(pair.inputs["path:draft"]), pair.dtype, pair.device)
    spec = change(own.spec)
    _drafter(engine, model=Eagle3Draft(spec, by_canonical(tensors), pair.target.embedding))


def _norm_output(engine: Engine) -> None:
    _flipped(engine, lambda spec: replace(spec, norm_output=not spec.norm_output))


def _norm_before_residual(engine: Engine) -> None:
    _flipped(engine, lambda spec: replace(spec, norm_before_residual=not spec.norm_before_residual))


def _direct_map(engine: Engine) -> None:
    def change(draft: Eagle3Draft) -> None:
        ids = torch.arange(draft.spec.draft_vocab, device=draft.device)
        draft.target_ids = draft.target_ids - ids

    _changed_draft(engine, change)


def _zero_map(engine: Engine) -> None:
    def change(draft: Eagle3Draft) -> None:
        draft.target_ids = torch.arange(draft.spec.draft_vocab, device=draft.device)

    _changed_draft(engine, change)


def _fc_skipped(engine: Engine) -> None:
    """The target hands out its last normed state alone, and the draft takes it as it is (2.2)."""
    spec = engine.pair.target_spec
    weight = norm_weights(engine.pair)[spec.n_layers]

    def fall_back(features: Tensor, hidden: Tensor) -> None:
        features[:, -hidden.shape[-1] :] = rms_norm(hidden, weight, spec.shape.eps)

    def change(draft: Eagle3Draft) -> None:
        draft.__class__ = _SkippedFc

    _changed_draft(engine, change)
    _capture(engine, engine.pair.target.capture, spoil=fall_back)


def _theta(engine: Engine, theta: float, scale: float = 1.0) -> None:
    draft, memory = engine.pair.draft, engine.memory
    assert draft is not None
    assert memory.draft is not None
    shape, old = draft.spec.shape, draft.spec.rope
    rope = Rope(
        RopeSpec(theta=theta, max_position=old.max_position),
        shape.head_dim,
        memory.draft.capacity,
        draft.dtype,
        draft.device,
    )
    if scale != 1.0:
        _stretch(rope, shape.head_dim, theta, scale)
    _drafter(engine, rope=rope)


def _stretch(rope: Rope, dim: int, theta: float, scale: float) -> None:
    """Divide all positions by ``scale`` in a rotation table."""
    even = torch.arange(0, dim, 2, dtype=torch.float64, device=rope.keys.device)
    places = torch.arange(rope.length, dtype=torch.float64, device=rope.keys.device) / scale
    exact = torch.polar(torch.ones(1).double(), torch.outer(places, theta ** -(even / dim)))
    rope.keys = exact.to(rope.keys.dtype)[:, None]
    rope.queries = (exact * dim**-0.5).to(rope.queries.dtype)[:, None, None]


def _no_compaction(engine: Engine) -> None:
    """Accepted slots of a tree stay where they were written (F28)."""
    engine.memory.target.keep = lambda lane, start, path: None  # type: ignore[method-assign]


def _alias(engine: Engine) -> None:
    last = max(engine.pair.target.capture)
    _capture(engine, (last,) * len(engine.pair.target.capture))


def _scaled(tensor: Tensor, hidden: Tensor) -> None:
    """A partial sum of one of two ranks (F34): half of each stream."""
    tensor.mul_(0.5)


def _half_range(tensor: Tensor, hidden: Tensor) -> None:
    """A narrow dtype clips the stream (F45)."""
    tensor.clamp_(-1.0, 1.0)


def _lost_stages(tensor: Tensor, hidden: Tensor) -> None:
    """Only the last pipeline stage captures (F37): the other chunks are zero."""
    width = hidden.shape[-1]
    tensor[:, :-width].zero_()


FAULTS: dict[str, Callable[[Engine], None]] = {
    "capture_plus_one": lambda e: _capture(e, _shifted(e, 1)),
    "capture_minus_one": lambda e: _capture(e, _shifted(e, -1)),
    "capture_default": lambda e: _capture(e, _default(e)),
    "capture_embedding": lambda e: _capture(e, (0, *e.pair.target.capture[1:])),
    "capture_reversed": lambda e: _capture(e, e.pair.target.capture[::-1]),
    "capture_aliased": _alias,
    "graph_default": lambda e: _capture(e, e.pair.target.capture, _default(e)),
    "partial_sum": lambda e: _capture(e, e.pair.target.capture, spoil=_scaled),
    "clipped_features": lambda e: _capture(e, e.pair.target.capture, spoil=_half_range),
    "lost_stages": lambda e: _capture(e, e.pair.target.capture, spoil=_lost_stages),
    "norm_output": _norm_output,
    "norm_before_residual": _norm_before_residual,
    "fc_skipped": _fc_skipped,
    "direct_map": _direct_map,
    "zero_map": _zero_map,
    "theta": lambda e: _theta(e, 1e6),
    "rope_scale": lambda e: _theta(e, e.pair.draft.spec.rope.theta if e.pair.draft else 1e4, 4.0),
    "decode_shift": lambda e: _drafter(e, DecodeShift),
    "no_extend": lambda e: _drafter(e, NoExtend),
    "wrong_row": lambda e: _drafter(e, WrongRow),
    "stale_features": lambda e: _drafter(e, StaleFeatures),
    "late_features": lambda e: _drafter(e, LateFeatures),
    "unshifted_tokens": lambda e: _drafter(e, UnshiftedTokens),
    "chunk_border": lambda e: _drafter(e, ChunkBorder),
    "siblings_seen": lambda e: _drafter(e, SiblingsSeen),
    "no_compaction": _no_compaction,
}
