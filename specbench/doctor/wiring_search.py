"""The search of whole choices of layers, on a part of the texts first.

All choices of a small target, or a coarse to fine part of a large one's, are scored on every third
text; the best of them, and the claim, on all texts (engine-spec 10.4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from specbench.doctor.wiring_candidates import Bounds, Change, Slots, search_slots
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.wiring import Wiring

EVERY = 3
LEAST = 12
FINALISTS = 8


def thinned(captured: Capture, every: int) -> Capture:
    """Every ``every``-th text with its rows."""
    kept = range(0, len(captured.samples), every)
    spans = captured.spans()
    rows = torch.cat([torch.arange(*spans[i], device=captured.tokens.device) for i in kept])
    samples = tuple(captured.samples[i] for i in kept)
    lengths = [len(s.tokens) for s in samples]
    return Capture(
        samples=samples,
        starts=tuple(sum(lengths[:i]) for i in range(len(lengths))),
        tokens=captured.tokens[rows],
        features={key: stream[rows] for key, stream in captured.features.items()},
        normed=captured.normed[rows],
        best=captured.best[rows],
        best_known=captured.best_known[rows],
        gap=captured.gap[rows],
    )


def best_layers(
    draft: ProbeDraft,
    captured: Capture,
    base: Wiring,
    bounds: Bounds,
    budget: int,
    whole: Callable[[Wiring], float],
) -> tuple[list[Change], int]:
    """The best choice of layers, as a change unless it is the claim.

    Args:
        draft: to be scored.
        captured: all texts.
        base: the claimed wiring.
        bounds: how many layers there are.
        budget: most choices to score.
        whole: accuracy of a wiring over all texts.

    Returns:
        At most one change, and the number of choices that were scored.
    """
    few = thinned(captured, EVERY) if len(captured.samples) >= EVERY * LEAST else captured
    seen: dict[Slots, float] = {}

    def score(slots: Slots) -> float:
        found = draft.score(few, replace(base, slots=slots), 1)
        seen[slots] = float(found.hit[:, 0].mean())
        return seen[slots]

    best, count = search_slots(score, base.slots, bounds.layers, budget)
    if few is not captured:
        finalists = sorted(seen, key=lambda slots: -seen[slots])[:FINALISTS]
        best = max([base.slots, *finalists], key=lambda slots: whole(replace(base, slots=slots)))
    if best == base.slots:
        return [], count
    wiring = replace(base, slots=best)
    return [Change(wire="slots", name=f"layers {list(best)}", wiring=wiring)], count
