"""Wirings that could have been meant: one change at a time from the one that the files claim."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from specbench.engine.wiring import Tap, Wiring
from specbench.modelspec import RopeScaling

Slots = tuple[int, ...]
COMMON_THETAS = (10_000.0, 500_000.0, 1_000_000.0)
LINEAR_SCALES = (2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A wiring with a name; ``wire`` is the kind of wire that differs from the claimed one."""

    wire: str
    name: str
    wiring: Wiring


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What can be varied: n layers, taps that were captured, the target's theta and scaling of
    rotations, and whether the draft ships an embedding and a vocabulary map."""

    layers: int
    taps: tuple[Tap, ...]
    target_theta: float
    own_embedding: bool
    mapped: bool
    target_scaling: RopeScaling | None = None


def single_changes(base: Wiring, bounds: Bounds) -> list[Change]:
    """All candidates that differ from ``base`` in one wire; none equals it."""
    found = [*_layers(base, bounds.layers), *_flags(base, bounds), *_rotations(base, bounds)]
    unique = {change.wiring: change for change in reversed(found) if change.wiring != base}
    return list(reversed(unique.values()))


def _layers(base: Wiring, n: int) -> Iterator[Change]:
    for shift in (-2, -1, 1, 2):
        yield from _slots(base, tuple(k + shift for k in base.slots), f"all layers {shift:+d}", n)
    for slot, own in enumerate(base.slots):
        for k in range(n + 1):
            moved = (*base.slots[:slot], k, *base.slots[slot + 1 :])
            what = "the embedding" if k == 0 else f"layer {k}"
            yield from _slots(base, moved, f"{what} instead of {own}", n)
    if len(base.slots) <= 4:
        for order in itertools.permutations(base.slots):
            yield from _slots(base, order, f"order {list(order)}", n)


def _slots(base: Wiring, slots: Slots, name: str, n: int) -> Iterator[Change]:
    if all(0 <= k <= n for k in slots):
        yield Change(wire="slots", name=name, wiring=replace(base, slots=slots))


def _flags(base: Wiring, bounds: Bounds) -> Iterator[Change]:
    names = {
        Tap.RESIDUAL: "residual stream",
        Tap.MLP: "MLP output without the residual",
        Tap.NORMED: "normed stream",
    }
    for tap in bounds.taps:
        if tap is not Tap.MLP or 0 not in base.slots:
            yield Change(wire="tap", name=names[tap], wiring=replace(base, tap=tap))
    paired = {-1: "tokens not shifted", 0: "token i+1 with feature i", 1: "features a row late"}
    for pairing, name in paired.items():
        yield Change(wire="pairing", name=name, wiring=replace(base, pairing=pairing))
    flipped = {
        "norm_before_residual": replace(base, norm_before_residual=not base.norm_before_residual),
        "norm_output": replace(base, norm_output=not base.norm_output),
        "norm_before_fc": replace(base, norm_before_fc=not base.norm_before_fc),
    }
    for flag, wiring in flipped.items():
        yield Change(wire=flag, name=f"{flag} {getattr(wiring, flag)}", wiring=wiring)
    for first, name in ((True, "token half first"), (False, "hidden half first")):
        wiring = replace(base, token_first=first)
        yield Change(wire="token_first", name=name, wiring=wiring)
    if bounds.mapped:
        name = "d2t as offsets" if base.direct_map else "d2t as target ids"
        wiring = replace(base, direct_map=not base.direct_map)
        yield Change(wire="direct_map", name=name, wiring=wiring)
    if bounds.own_embedding:
        name = "the target's embedding" if base.own_embedding else "the draft's own embedding"
        wiring = replace(base, own_embedding=not base.own_embedding)
        yield Change(wire="own_embedding", name=name, wiring=wiring)


def _rotations(base: Wiring, bounds: Bounds) -> Iterator[Change]:
    for theta in dict.fromkeys((bounds.target_theta, *COMMON_THETAS)):
        yield Change(wire="theta", name=f"theta {theta:g}", wiring=replace(base, theta=theta))
    for scale in (1.0, *LINEAR_SCALES):
        name = f"positions divided by {scale:g}"
        yield Change(wire="scale", name=name, wiring=replace(base, scale=scale))
    for adjacent, name in ((False, "pairs half a head apart"), (True, "pairs side by side")):
        wiring = replace(base, adjacent=adjacent)
        yield Change(wire="adjacent", name=f"rotated {name}", wiring=wiring)
    for scaling in (None, bounds.target_scaling):
        name = "rotations as they are" if scaling is None else f"rotations {scaling}"
        yield Change(wire="scaling", name=name, wiring=replace(base, scaling=scaling))


def search_slots(
    score: Callable[[Slots], float], start: Slots, layers: int, budget: int
) -> tuple[Slots, int]:
    """The best ascending choice of layers: all when they fit the budget, else coarse to fine.

    Coarse: every ``stride``-th layer, with the stride that half of the budget pays. Fine: one
    slot at a time around the best, with strides halved down to 1, until nothing improves.

    Args:
        score: accuracy of a choice; called at most about ``budget`` times.
        start: the claimed choice; always scored.
        layers: n; indices are 0..n.
        budget: most scorings.

    Returns:
        The best choice and the number of scorings.
    """
    width, seen = len(start), {start: score(start)}
    stride = 1
    limit = budget if math.comb(layers + 1, width) <= budget else budget // 2
    while math.comb(layers // stride + 1, width) > limit:
        stride += 1
    for slots in itertools.combinations(range(0, layers + 1, stride), width):
        if slots not in seen:
            seen[slots] = score(slots)
    best = max(seen, key=lambda slots: seen[slots])
    while len(seen) < budget and stride > 1:
        stride = max(stride // 2, 1)
        improved = True
        while improved and len(seen) < budget:
            improved = False
            for slots in _near(best, stride, layers):
                if slots not in seen and len(seen) < budget:
                    seen[slots] = score(slots)
            top = max(seen, key=lambda slots: seen[slots])
            improved, best = top != best, top
    return best, len(seen)


def _near(slots: Slots, stride: int, layers: int) -> Iterator[Slots]:
    for place, k in enumerate(slots):
        for moved in (k - stride, k + stride):
            near = (*slots[:place], moved, *slots[place + 1 :])
            if 0 <= moved <= layers and list(near) == sorted(set(near)):
                yield near
