"""Which wiring does the draft itself prefer? The files' claim against every candidate.

A draft with a wrong wire can still accept well, so no threshold finds it (demo-pair.md): the
claim must beat every candidate on the same positions. Steps 1 and 2 are scored apart, since the
recurrence shows only from step 2 on. Differences are paired by position, and their standard
error is clustered by request, because positions of one reply go together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.doctor.findings import FAULT_Z
from specbench.doctor.wiring_candidates import Bounds, Change, single_changes
from specbench.doctor.wiring_search import best_layers
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import Scores
from specbench.engine.wiring import Wiring
from specbench.errors import WorkloadError

STEPS = 2
LEAST_REQUESTS = 12
WORTH_MORE = 0.025  # share of right guesses that is worth a larger corpus
BUDGET = 200
MOST_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scored wiring. ``first`` and ``second`` are teacher-forced accuracies of steps 1 and 2
    over the whole vocabulary. ``gain`` is how much their mean exceeds the base's, in the same
    unit, with its standard error; ``z`` is gain over error (None when the two never differ), and
    ``limit`` the z above which it beats the base."""

    change: Change
    first: float
    second: float
    gain: float
    error: float
    z: float | None
    limit: float = FAULT_Z

    @property
    def better(self) -> bool:
        """It beats the base by more than its limit of standard errors."""
        return self.z is not None and self.z > self.limit

    @property
    def most(self) -> float:
        """The largest gain over the base that three standard errors leave possible."""
        return self.gain + FAULT_Z * self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A later look at candidates that the first text left open: ``names``, over ``positions`` of
    ``requests``, the first ones counted."""

    names: tuple[str, ...]
    requests: int
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the probe of the wiring found.

    ``claimed`` is the files' wiring with its accuracies; ``ranked`` are the candidates, best
    first; ``winner`` is the joint repair, None when nothing beats the claim, with the changes
    that it is made of in ``repairs`` (each measured against the repairs before it).
    ``searched`` counts the choices of layers that were scored. ``look`` is there when some
    candidates, and the claim beside them, were scored on further requests (``wiring_more``).
    """

    claimed: Candidate
    ranked: tuple[Candidate, ...]
    winner: Candidate | None
    repairs: tuple[Candidate, ...]
    requests: int
    positions: int
    longest: int
    searched: int
    unknown_share: float
    look: Look | None = None

    @property
    def open(self) -> tuple[Candidate, ...]:
        """Candidates that are not told apart from the claim, by what they could gain: neither
        surely better nor surely worse. One whose every guess is the claim's gains nothing."""
        left = [c for c in self.ranked if c.most > 0 and not c.better]
        return tuple(sorted(left, key=lambda c: (-c.most, c.change.name)))

    @property
    def unseen(self) -> str:
        """What a corpus of this size could not have shown.

        The standard error of a difference is that of the positions where two wirings guess
        otherwise, so every candidate has its own: one close to the claim is measured finely.
        """
        look = self.look
        more = (
            ""
            if look is None
            else (f" ({look.positions} of {look.requests} for {', '.join(look.names)})")
        )
        told = f"{self.positions} positions of {self.requests} requests{more}: "
        if self.requests < LEAST_REQUESTS:
            told += f"under {LEAST_REQUESTS} requests no fault is declared. "
        left, total = self.open, len(self.ranked)
        if left:
            told += (
                f"{total - len(left)} of {total} candidates are told apart by three standard "
                f"errors; the claim could lose at most {100 * left[0].most:.1f} points to one of "
                f"the others ({left[0].change.name}). "
            )
            if left[0].most > WORTH_MORE:
                told += "More --requests or --max-tokens would settle it. "
        else:
            told += f"all {total} candidates are told apart by three standard errors. "
        return (
            f"{told}Faults beyond position {self.longest}, and those that no candidate is, cannot "
            "be seen."
        )


def probe_wiring(
    draft: ProbeDraft, capture: Capture, bounds: Bounds, *, budget: int = BUDGET
) -> Verdict:
    """Score the claim, every single change, and the best changes together.

    Args:
        draft: the draft, apart from the engine.
        capture: the target on its own greedy text, at least two tokens past each cut.
        bounds: what can be varied.
        budget: most choices of layers to score.

    Raises:
        WorkloadError: no positions to score.
    """
    base = Change(wire="", name="as the files claim", wiring=draft.claimed)
    judge = Judge(draft, capture)
    claimed = judge.candidate(base, base.wiring)
    changes = single_changes(base.wiring, bounds)
    found, searched = best_layers(draft, capture, base.wiring, bounds, budget, judge.first)
    known = {change.wiring for change in changes}
    changes += [change for change in found if change.wiring not in known]
    ranked = sorted(
        (judge.candidate(change, base.wiring) for change in changes),
        key=lambda c: (-c.gain, c.change.name),
    )
    enough = len(capture.samples) >= LEAST_REQUESTS
    winner, repairs = joint_repair(judge, ranked, base.wiring, bounds) if enough else (None, ())
    scores = judge.scores(base.wiring)
    return Verdict(
        claimed=claimed,
        ranked=tuple(ranked),
        winner=winner,
        repairs=repairs,
        requests=len(capture.samples),
        positions=len(scores.rank),
        longest=max(len(s.tokens) for s in capture.samples),
        searched=searched,
        unknown_share=float((scores.rank[:, 0] < 0).mean()),
    )


def joint_repair(
    judge: Judge, ranked: Sequence[Candidate], base: Wiring, bounds: Bounds
) -> tuple[Candidate | None, tuple[Candidate, ...]]:
    """All repairs together, and one by one; None and nothing when no candidate beats the base."""
    repairs = _repairs(judge, ranked, base, bounds)
    if len(repairs) < 2:
        return (repairs[0] if repairs else None), repairs
    names = ", ".join(c.change.name for c in repairs)
    wire = "+".join(dict.fromkeys(c.change.wire for c in repairs))
    change = Change(wire=wire, name=names, wiring=repairs[-1].change.wiring)
    return judge.candidate(change, base), repairs


def _repairs(
    judge: Judge, ranked: Sequence[Candidate], base: Wiring, bounds: Bounds
) -> tuple[Candidate, ...]:
    """Changes taken one after another, the largest gain first, while each still gains."""
    taken: list[Candidate] = []
    wiring, pool = base, [c for c in ranked if c.better]
    for _ in range(MOST_ROUNDS):
        if not pool:
            break
        best = max(pool, key=lambda c: c.gain)
        taken.append(best)
        wiring = best.change.wiring
        again = [judge.candidate(c, wiring) for c in single_changes(wiring, bounds)]
        pool = [c for c in again if c.better and c.change.wiring != base]
    return tuple(taken)


class Judge:
    """Scores wirings on one text, each once, and compares them pairwise."""

    def __init__(self, draft: ProbeDraft, capture: Capture) -> None:
        if not capture.samples:
            raise WorkloadError("the probe has no text.", expected="At least one reply.")
        self._draft, self._capture = draft, capture
        self._scores: dict[Wiring, Scores] = {}

    def scores(self, wiring: Wiring) -> Scores:
        """Two steps of a wiring."""
        if wiring not in self._scores:
            self._scores[wiring] = self._draft.score(self._capture, wiring, STEPS)
        return self._scores[wiring]

    def first(self, wiring: Wiring) -> float:
        """Accuracy of step 1 alone, for the search."""
        return float(self._draft.score(self._capture, wiring, 1).hit[:, 0].mean())

    def candidate(self, change: Change, base: Wiring) -> Candidate:
        """A change against ``base``."""
        here, there = self.scores(change.wiring), self.scores(base)
        first, second = here.hit.mean(0).tolist()
        gain, error = paired_gain(here.hit.mean(1), there.hit.mean(1), here.text)
        return Candidate(
            change=change,
            first=first,
            second=second,
            gain=gain,
            error=error,
            z=gain / error if error > 0 else None,
        )


def paired_gain(here: np.ndarray, there: np.ndarray, text: np.ndarray) -> tuple[float, float]:
    """Mean of ``here - there`` over positions, and its standard error clustered by text.

    The linearised variance of a ratio of sums over texts (Cochran, Sampling Techniques, 1977,
    section 6.13): texts of different lengths weigh by their positions.

    >>> paired_gain(np.array([1., 1., 0.]), np.array([0., 1., 0.]), np.array([0, 0, 1]))
    (0.3333333333333333, 0.22222222222222224)
    """
    units = int(text.max()) + 1
    sums = np.bincount(text, weights=here - there, minlength=units)
    counts = np.bincount(text, minlength=units)
    sums, counts = sums[counts > 0], counts[counts > 0]
    total, m = float(counts.sum()), len(counts)
    mean = float(sums.sum()) / total
    if m < 2:
        return mean, math.inf
    spread = float(((sums - mean * counts) ** 2).sum())
    return mean, math.sqrt(m / (m - 1) * spread) / total
