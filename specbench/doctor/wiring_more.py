"""More text where the first did not decide.

After the first requests most candidates are far behind the claim. One is *contested* when it could
still gain more than ``WORTH_MORE``: a wiring that neither beats the claim nor is surely behind, or
another form of the prompts that leads by ``LEADS`` standard errors. Contested ones alone get a
further look, on the first requests and as many more together: group-sequential testing of nested
samples (Jennison and Turnbull, Group Sequential Methods, 1999, chapter 2).

Looking again gives chance another try. A candidate that is as good as the claim passes three
standard errors at the first look in 0.135 % of cases; at ``LATER_Z`` each later look adds at most
0.048 %, and there are two at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from specbench.doctor.wiring import (
    LEAST_REQUESTS,
    STEPS,
    WORTH_MORE,
    Candidate,
    Judge,
    Look,
    Verdict,
    joint_repair,
)
from specbench.doctor.wiring_candidates import Bounds, Change
from specbench.doctor.wiring_template import (
    Variant,
    hits_by_request,
    renderings,
    scored_texts,
)
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.wiring import Wiring
from specbench.errors import SpecbenchError
from specbench.request import Request

FIRST_REQUESTS = 36
MOST_REQUESTS = 108
MOST_LOOKS = 3
LEADS = 1.645
LATER_Z = 3.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Requests that were not asked yet, and how long one took to be written and captured.

    The second look is always taken, as it costs less than the first; a third only when it will end
    before ``until`` (seconds of ``time.perf_counter``).
    """

    requests: tuple[Request, ...] = ()
    seconds: float = 0.0
    until: float = math.inf

    def part(self, taken: int, size: int) -> tuple[Request, ...]:
        """The next ``size`` requests after the first ``taken``; nothing when it would be late."""
        part = self.requests[taken : taken + size]
        late = time.perf_counter() + len(part) * self.seconds > self.until
        return () if taken and late else part


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What is known of wirings and prompts; ``told`` says in words what further text was taken, and
    why."""

    verdict: Verdict
    variants: tuple[Variant, ...]
    told: tuple[str, ...] = ()


def contested_wirings(verdict: Verdict) -> tuple[Candidate, ...]:
    """Candidates that could gain more than ``WORTH_MORE`` on the claim; none once a fault is
    named."""
    if verdict.winner is not None or verdict.requests < LEAST_REQUESTS:
        return ()
    return tuple(c for c in verdict.open if c.most > WORTH_MORE)


def contested_forms(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    """Other forms of the prompts that lead, and might be worth it; none once one is sure."""
    known = tuple(variants)
    if any(v.better for v in known):
        return ()
    return tuple(
        v for v in known if v.z > LEADS and v.most > WORTH_MORE and len(v.base) >= LEAST_REQUESTS
    )


class FurtherText:
    """The first text and what was added to it, for the streams that are needed."""

    def __init__(
        self, pair: ModelPair, draft: ProbeDraft, folder: Path, first: Capture, bounds: Bounds
    ) -> None:
        """``folder`` is the draft's; ``first`` has every stream."""
        self._pair, self._draft, self._folder = pair, draft, folder
        self._first, self._bounds = first, bounds
        self._whole = first

    def look(
        self, part: Sequence[Request], scored: Scored, wires: Sequence[Candidate],
        forms: Sequence[Variant],
    ) -> Scored:  # fmt: skip
        """Score the claim and what is contested on ``part`` as well."""
        claimed = self._draft.claimed
        new = self._captured(part, [claimed, *(c.change.wiring for c in wires)])
        verdict = scored.verdict
        if wires:
            self._whole = joined(self._whole, new)
            verdict = self._verdict(verdict, wires)
        now = hits_by_request(self._draft, new) if forms else None
        again = {id(v): self._variant(v, part, now) for v in forms if now is not None}
        variants = tuple(again.get(id(v), v) for v in scored.variants)
        return replace(scored, verdict=verdict, variants=variants)

    def _captured(self, part: Sequence[Request], wirings: Sequence[Wiring]) -> Capture:
        layers = {k for w in wirings for k in (*w.slots, *(w.verify_slots or ()))}
        return capture(
            self._pair,
            greedy_texts(self._pair, part, past=STEPS),
            vocab_ids=self._draft.target_ids(),
            layers=tuple(layers),
            taps=tuple({w.tap for w in wirings}),
        )

    def _verdict(self, verdict: Verdict, wires: Sequence[Candidate]) -> Verdict:
        """With the contested candidates judged on all text, everything else as it was."""
        judge, base = Judge(self._draft, self._whole), self._draft.claimed
        again = {c.change: replace(judge.candidate(c.change, base), limit=LATER_Z) for c in wires}
        ranked = sorted(
            (again.get(c.change, c) for c in verdict.ranked),
            key=lambda c: (-c.gain, c.change.name),
        )
        first = Judge(self._draft, self._first)  # what comes behind a repair: all streams are here
        winner, repairs = joint_repair(first, ranked, base, self._bounds)
        return replace(
            verdict,
            claimed=judge.candidate(Change(wire="", name=verdict.claimed.change.name, wiring=base),
                                    base),
            ranked=tuple(ranked),
            winner=winner,
            repairs=repairs,
            longest=max(len(s.tokens) for s in self._whole.samples),
            look=Look(
                names=tuple(c.change.name for c in wires),
                requests=len(self._whole.samples),
                positions=len(judge.scores(base).rank),
            ),
        )  # fmt: skip

    def _variant(self, variant: Variant, part: Sequence[Request], now: np.ndarray) -> Variant:
        formed = dict(renderings(self._pair, self._folder, part)).get(variant.name)
        if formed is None:  # the template refuses one of these messages
            return variant
        more = scored_texts(self._pair, self._draft, formed)
        return replace(
            variant,
            sums=np.concatenate([variant.sums, more]),
            base=np.concatenate([variant.base, now]),
            limit=LATER_Z,
        )


def settle(text: FurtherText, reserve: Reserve, first: int, scored: Scored) -> Scored:
    """Look again at what is contested, while it is and there is more to look at.

    Args:
        text: the first text.
        reserve: requests beyond the ``first`` ones.
        first: how many requests the first text has; each look takes as many more.
        scored: on the first text.
    """
    taken, told = 0, []
    for _ in range(MOST_LOOKS - 1):
        wires, forms = contested_wirings(scored.verdict), contested_forms(scored.variants)
        part = reserve.part(taken, first) if wires or forms else ()
        if not part:
            break
        told.append(_why(wires, forms, first + taken, len(part)))
        taken += len(part)
        try:
            scored = text.look(part, scored, wires, forms)
        except SpecbenchError as error:  # what the first text showed stays known
            told.append(f"They could not be scored: {error}")
            break
    return replace(scored, told=tuple(told))


def _why(wires: Sequence[Candidate], forms: Sequence[Variant], asked: int, more: int) -> str:
    open_ = {c.change.name: (c.gain, c.error) for c in wires}
    open_ |= {v.name: (v.gain, v.error) for v in forms}
    first = max(open_, key=lambda name: open_[name][0])
    gain, error = open_[first]
    others = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
    return (
        f"{asked} requests did not decide on {first} ({100 * gain:+.1f} ± {100 * error:.1f} "
        f"points){others}, so {more} more were asked: {asked + more} in all."
    )


def joined(one: Capture, other: Capture) -> Capture:
    """The texts of both after one another, with the streams that both have."""
    kept = one.features.keys() & other.features.keys()
    return Capture(
        samples=(*one.samples, *other.samples),
        starts=(*one.starts, *(one.rows + start for start in other.starts)),
        tokens=torch.cat([one.tokens, other.tokens]),
        features={key: torch.cat([one.features[key], other.features[key]]) for key in kept},
        normed=torch.cat([one.normed, other.normed]),
        best=torch.cat([one.best, other.best]),
        best_known=torch.cat([one.best_known, other.best_known]),
        gap=torch.cat([one.gap, other.gap]),
    )
