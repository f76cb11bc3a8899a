"""The signature of a faulty run beside a sound one: the shapes of engine-spec 10.1 as a rule.

A description for a table, not a diagnosis: it knows the sound run, which a user does not.
"""

from __future__ import annotations

import itertools

import numpy as np

from specbench.doctor.wiring_served import Served

ONE = 1.02
KEPT = 0.97
LOST = 0.93
ALIKE = 0.1


def conditionals(served: Served, depth: int = 3) -> list[float]:
    """c_1 .. c_depth of the steps; NaN where no step got that far."""
    alive = [int((served.accepted >= i).sum()) for i in range(depth + 1)]
    return [b / a if a else float("nan") for a, b in itertools.pairwise(alive)]


def shape_of(sound: Served, seen: Served) -> str:
    """one, cycle, long, tail, flat, first or none.

    *cycle*: the first step of every request keeps what later ones lose, or the inverse. *long*: the
    longer half of the contexts loses what the shorter keeps. Then by position: *tail* keeps c_1,
    *flat* loses alike, *first* otherwise.
    """
    if seen.accept_length < ONE:
        return "one"
    ratios = [
        a / b for a, b in zip(conditionals(seen), conditionals(sound), strict=True) if a == a and b
    ]
    if min(ratios, default=1.0) >= KEPT and seen.accept_length > KEPT * sound.accept_length:
        return "none"
    early, late = _parts(sound, seen, _first(sound), _first(seen))
    if early >= KEPT > LOST >= late or late >= KEPT > LOST >= early:
        return "cycle"
    middle = float(np.median(sound.at))
    short, long = _parts(sound, seen, sound.at <= middle, seen.at <= middle)
    if short >= KEPT and long < LOST:
        return "long"
    if ratios[0] >= KEPT:
        return "tail"
    return "flat" if max(ratios) - min(ratios) < ALIKE else "first"


def _first(served: Served) -> np.ndarray:
    """Which steps are the first of their text."""
    before = np.concatenate([[-1], served.texts[:-1]])
    return np.asarray(served.texts != before)


def _parts(
    sound: Served, seen: Served, of_sound: np.ndarray, of_seen: np.ndarray
) -> tuple[float, float]:
    """Accepted drafts of a part and of the rest, over the sound run's."""

    def ratio(mine: np.ndarray, theirs: np.ndarray) -> float:
        base = float(sound.accepted[theirs].mean()) if theirs.any() else 0.0
        return float(seen.accepted[mine].mean()) / base if mine.any() and base else 1.0

    return ratio(of_seen, of_sound), ratio(~of_seen, ~of_sound)
