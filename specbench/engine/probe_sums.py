"""What a probe counted on each reply: sums that stay apart, so that intervals can be clustered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specbench.engine.probe_capture import Capture
from specbench.engine.probe_scores import (
    BoolArray,
    IntArray,
    Scores,
    Walked,
    tree_walk,
    walk,
)
from specbench.engine.probe_text import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySums:
    """Counts over one reply; tuples have one entry per step 1..K.

    ``positions`` are chain starts. ``known`` counts the draft's argmax being the target's best
    token among those the draft knows, ``hits`` the same over the whole vocabulary, ``alive``
    chains whose steps 1..k are all right. ``starts`` are those whose next k - 1 tokens are the
    target's own, so that a chain can be judged: all of them in the target's own text. ``tree``
    counts trees whose levels 1..k hold the target's tokens; empty where none were grown.
    ``verify_steps`` and ``accepted`` are those of the walk of a chain, ``tree_steps`` and
    ``tree_accepted`` of the trees; 0 in text that is not the target's own.
    """

    request_id: str
    category: str
    positions: int
    known: tuple[int, ...]
    hits: tuple[int, ...]
    alive: tuple[int, ...]
    starts: tuple[int, ...]
    verify_steps: int
    accepted: int
    tree: tuple[int, ...] = ()
    tree_steps: int = 0
    tree_accepted: int = 0


def reply_sums(
    captured: Capture,
    scores: Scores,
    steps: int,
    levels: BoolArray | None = None,
    *,
    own_text: bool = True,
) -> tuple[ReplySums, ...]:
    """The counts of every reply that has a position to score.

    ``levels`` [R, K] are those of trees that hold the target's tokens. Replies of one stored text
    are added up: they are one cluster.
    """
    texts = range(len(captured.samples))
    walked = walk(captured, scores, steps) if own_text else [[] for _ in texts]
    grown = tree_walk(captured, scores, levels) if own_text and levels is not None else None
    found = [
        _sums(
            captured.samples[i],
            scores,
            at,
            walked[i],
            None if levels is None else levels[at],
            grown[i] if grown else [],
            own_text=own_text,
        )
        for i in texts
        if len(at := np.flatnonzero(scores.text == i))
    ]
    return tuple(found) if own_text else _by_text(found)


def _sums(
    sample: Sample,
    scores: Scores,
    at: IntArray,
    made: Sequence[Walked],
    levels: BoolArray | None,
    grown: Sequence[Walked],
    *,
    own_text: bool,
) -> ReplySums:
    steps = scores.rank.shape[1]
    starts = [len(at)] * steps if own_text else scores.greedy[at].sum(0).tolist()
    return ReplySums(
        request_id=sample.request_id,
        category=sample.category,
        positions=len(at),
        known=tuple(scores.known_hit[at].sum(0).tolist()),
        hits=tuple(scores.hit[at].sum(0).tolist()),
        alive=tuple(scores.alive[at].sum(0).tolist()),
        starts=tuple(starts),
        verify_steps=len(made),
        accepted=sum(step.accepted for step in made),
        tree=() if levels is None else tuple(np.logical_and.accumulate(levels, 1).sum(0).tolist()),
        tree_steps=len(grown),
        tree_accepted=sum(step.accepted for step in grown),
    )


def _by_text(replies: Sequence[ReplySums]) -> tuple[ReplySums, ...]:
    """Replies of the same text added up."""
    texts: dict[str, ReplySums] = {}
    for reply in replies:
        known = texts.get(reply.request_id)
        texts[reply.request_id] = reply if known is None else _added(known, reply)
    return tuple(texts.values())


def _added(one: ReplySums, other: ReplySums) -> ReplySums:
    sums: dict[str, Any] = {}
    for name in ("known", "hits", "alive", "starts", "tree"):
        pairs = zip(getattr(one, name), getattr(other, name), strict=True)
        sums[name] = tuple(a + b for a, b in pairs)
    return replace(one, positions=one.positions + other.positions, **sums)
