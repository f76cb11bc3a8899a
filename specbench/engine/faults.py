"""Faults to switch on in an engine, for tests of the doctor only (engine-spec 10.2).

Each replaces one part of a configured engine by a part that is wrong in one way; the engine itself
has no switch. Call ``inject`` after ``Engine.configure``, which builds the right parts again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

import specbench.engine.faults_capture as cap
from specbench.checkpoint.draft_names import by_canonical
from specbench.checkpoint.folder import open_folder
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.faults_drafters import (
    CachedBorder,
    ChunkBorder,
    DecodeShift,
    LateFeatures,
    NoExtend,
    SiblingsSeen,
    StaleFeatures,
    UnshiftedTokens,
    WrongRow,
)
from specbench.engine.graphs import GraphMode
from specbench.engine.models.base import RowKind
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Rope
from specbench.engine.models.weights import load_tensors
from specbench.engine.probe_capture import norm_weights, rms_norm
from specbench.errors import ConfigError
from specbench.modelspec import DraftSpec, RopeSpec

SHORT_TABLE = 64


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
    cap.spoilt(engine, fall_back)


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


def _random_weights(engine: Engine) -> None:
    """The loader found no weights for the attention's output and left it as it was made (F51)."""
    pair = engine.pair
    assert pair.draft is not None
    stored = load_tensors(open_folder(pair.inputs["path:draft"]), pair.dtype, pair.device)
    tensors = dict(by_canonical(stored))
    name = "midlayer.self_attn.o_proj.weight"
    made = torch.randn(tensors[name].shape, generator=torch.Generator().manual_seed(0))
    tensors[name] = (made * tensors[name].std().cpu()).to(tensors[name])
    _drafter(engine, model=Eagle3Draft(pair.draft.spec, tensors, pair.target.embedding))


def _short_table(engine: Engine) -> None:
    """The rotation table ends early; positions beyond read its last entry (F21)."""
    draft, memory = engine.pair.draft, engine.memory
    assert draft is not None
    assert memory.draft is not None
    rope = Rope(
        draft.spec.rope, draft.spec.shape.head_dim, memory.draft.capacity, draft.dtype, draft.device
    )
    rope.keys[SHORT_TABLE:] = rope.keys[SHORT_TABLE - 1]
    rope.queries[SHORT_TABLE:] = rope.queries[SHORT_TABLE - 1]
    _drafter(engine, rope=rope)


def _replayed(fault: Callable[[Engine], None]) -> Callable[[Engine], None]:
    """A fault that was fixed when graphs were captured: eager runs are right."""

    def switch(engine: Engine) -> None:
        if engine.graph_mode is not GraphMode.EAGER:
            fault(engine)

    return switch


FAULTS: dict[str, Callable[[Engine], None]] = {
    "capture_plus_one": lambda e: cap.capture(e, cap.shifted(e, 1)),
    "capture_minus_one": lambda e: cap.capture(e, cap.shifted(e, -1)),
    "capture_default": lambda e: cap.capture(e, cap.default(e)),
    "capture_embedding": lambda e: cap.capture(e, (0, *e.pair.target.capture[1:])),
    "capture_reversed": lambda e: cap.capture(e, e.pair.target.capture[::-1]),
    "capture_aliased": cap.alias,
    "capture_normed": cap.normed,
    "graph_default": lambda e: cap.capture(e, e.pair.target.capture, cap.default(e)),
    "graph_default_replayed": _replayed(
        lambda e: cap.capture(e, e.pair.target.capture, cap.default(e))
    ),
    "partial_sum": lambda e: cap.spoilt(e, cap.scaled),
    "clipped_features": lambda e: cap.spoilt(e, cap.clipped),
    "lost_features": lambda e: cap.spoilt(e, cap.lost),
    "lost_stages": lambda e: cap.spoilt(e, cap.lost_stages),
    "swapped_lanes": cap.swapped_lanes,
    "norm_output": _norm_output,
    "norm_before_residual": _norm_before_residual,
    "fc_skipped": _fc_skipped,
    "random_weights": _random_weights,
    "direct_map": _direct_map,
    "zero_map": _zero_map,
    "theta": lambda e: _theta(e, 1e6),
    "rope_scale": lambda e: _theta(e, e.pair.draft.spec.rope.theta if e.pair.draft else 1e4, 4.0),
    "short_table": _short_table,
    "decode_shift": lambda e: _drafter(e, DecodeShift),
    "no_extend": lambda e: _drafter(e, NoExtend),
    "wrong_row": lambda e: _drafter(e, WrongRow),
    "stale_features": lambda e: _drafter(e, StaleFeatures),
    "stale_replayed": _replayed(lambda e: _drafter(e, StaleFeatures)),
    "late_features": lambda e: _drafter(e, LateFeatures),
    "unshifted_tokens": lambda e: _drafter(e, UnshiftedTokens),
    "chunk_border": lambda e: _drafter(e, ChunkBorder),
    "cached_border": lambda e: _drafter(e, CachedBorder),
    "siblings_seen": lambda e: _drafter(e, SiblingsSeen),
    "no_compaction": _no_compaction,
}
