"""Does an arm say what plain decoding says? Tokens against tokens, prompt by prompt.

========================  ===================================================================
verdict                   when
========================  ===================================================================
exact                     every compared greedy output has the tokens of the baseline's
tie_only                  outputs differ, first where the target's two best scores are closer
                          than 1e-5 (relative): rounding decides there (semantics.md 18)
lossy                     some output differs first where the target had a clear favourite;
                          or sampled tokens are distributed otherwise (frequencies.py, p < 0.001);
                          or the rule that accepts sampled drafts is lossy by its settings
inconclusive              nothing to compare, a difference that no one can judge, or sampled
                          outputs that were not shown to differ
========================  ===================================================================

**Control.** With a second plain arm in the same blocks (``--noise-floor``) plain decoding is held
against itself at the same batch. Where it parts, too, the largest gap at which it did stands for
what rounding decides on this machine and dtype, and a divergence within it is a tie.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from specbench.metrics.frequencies import LEAST_PAIRS, compare_frequencies
from specbench.metrics.sums import PromptKey, is_complete, prompt_key
from specbench.request import Request
from specbench.trace import RequestTrace

TIE = 1e-5
SAMPLED_P = 0.001
Gap = Callable[[Request, Sequence[int]], float]


class Verdict(enum.StrEnum):
    """What the comparison of an arm with its baseline says."""

    EXACT = "exact"
    TIE_ONLY = "tie_only"
    LOSSY = "lossy"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first token at which two outputs part; None stands for an output that ended there.

    ``gap`` is the target's relative gap of its two best scores, None when no one looked.
    """

    request_id: str
    position: int
    baseline_token: int | None
    arm_token: int | None
    gap: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lossless:
    """A verdict, what it rests on, and every output that differs.

    ``control_compared`` and ``control_identical`` are of plain decoding against itself, None
    without such an arm. ``p`` is that of the test of sampled tokens.
    """

    verdict: Verdict
    compared: int
    identical: int
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    control_compared: int | None = None
    control_identical: int | None = None
    p: float | None = None

    @property
    def largest_gap(self) -> float | None:
        """The clearest favourite that was passed over; None when nothing was looked at."""
        return max((d.gap for d in self.differences if d.gap is not None), default=None)

    @property
    def positions(self) -> tuple[int, ...]:
        """Where outputs part, in ascending order."""
        return tuple(sorted(difference.position for difference in self.differences))


def judge(
    baseline: Iterable[RequestTrace],
    arm: Iterable[RequestTrace],
    *,
    gap: Gap | None = None,
    control: Lossless | None = None,
) -> Lossless:
    """Compare the complete outputs of two arms, paired by prompt, turn and repeat.

    A later turn is compared only if both arms were asked the same; after a tie in an earlier
    reply they were not. Where ids are missing on both sides, equal text counts as identical.

    Args:
        baseline: traces of plain decoding.
        arm: traces of the arm.
        gap: the target's relative gap of its two best scores after a prompt and output prefix
            (``backends.base.GapProbe.top2_gap``); without it a difference cannot be judged.
        control: plain decoding judged against itself at the same batch.
    """
    verdict = _judge(baseline, arm, gap, (control.largest_gap if control else None) or 0.0)
    if control is None:
        return verdict
    return replace(verdict, control_compared=control.compared, control_identical=control.identical)


def lossy_by_rule(verdict: Lossless | None, reason: str) -> Lossless:
    """``lossy`` for ``reason``, whatever outputs showed; ``verdict`` is what they did show."""
    seen = verdict or Lossless(verdict=Verdict.LOSSY, compared=0, identical=0)
    return replace(seen, verdict=Verdict.LOSSY, reason=reason)


def _judge(
    baseline: Iterable[RequestTrace],
    arm: Iterable[RequestTrace],
    gap: Gap | None,
    rounding: float,
) -> Lossless:
    pairs = _pairs(baseline, arm)
    if not pairs:
        return _inconclusive("no prompt was answered by both arms")
    if any(not trace.request.sampling.greedy for pair in pairs for trace in pair):
        return _sampled(pairs)
    same_question = [(a, b) for a, b in pairs if _asked(a) == _asked(b)]
    parted = [(a, b) for a, b in same_question if not _equal(a, b)]
    identical = len(same_question) - len(parted)
    unknown = [a for a, b in parted if a.output_ids is None or b.output_ids is None]
    if unknown:
        return Lossless(
            verdict=Verdict.INCONCLUSIVE,
            compared=len(same_question),
            identical=identical,
            reason=f"{len(unknown)} outputs differ as text and their token ids are not known",
        )
    differences = tuple(_difference(a, b, gap) for a, b in parted)
    verdict, reason = _verdict(differences, max(TIE, rounding * (1 + TIE)))
    return Lossless(
        verdict=verdict,
        compared=len(same_question),
        identical=identical,
        differences=differences,
        reason=reason,
    )


def _sampled(pairs: Sequence[tuple[RequestTrace, RequestTrace]]) -> Lossless:
    """Tokens of outputs that were drawn: only their frequencies can be compared."""
    known = [
        (a.output_ids, b.output_ids)
        for a, b in pairs
        if a.output_ids and b.output_ids and _asked(a) == _asked(b)
    ]
    identical = sum(a == b for a, b in known)
    test = compare_frequencies(known)
    if test is None:
        return _inconclusive(
            f"{len(known)} sampled outputs with known tokens: their frequencies are compared from "
            f"{LEAST_PAIRS} on"
        )
    lossy = test.p < SAMPLED_P
    return Lossless(
        verdict=Verdict.LOSSY if lossy else Verdict.INCONCLUSIVE,
        compared=test.pairs,
        identical=identical,
        reason=f"token frequencies of sampled outputs {'differ' if lossy else 'do not differ'} "
        f"(distance {test.distance:.2f}, p = {test.p:.4f})",
        p=test.p,
    )


def _verdict(differences: Sequence[Difference], tie: float) -> tuple[Verdict, str]:
    if not differences:
        return Verdict.EXACT, ""
    clear = [d for d in differences if d.gap is not None and d.gap >= tie]
    if clear:
        return Verdict.LOSSY, f"{len(clear)} outputs part where the target has a clear favourite"
    unseen = [d for d in differences if d.gap is None]
    if unseen:
        return Verdict.INCONCLUSIVE, f"{len(unseen)} outputs differ and no one saw the scores"
    return Verdict.TIE_ONLY, f"{len(differences)} outputs part at a tie of the target's scores"


def _inconclusive(reason: str) -> Lossless:
    return Lossless(verdict=Verdict.INCONCLUSIVE, compared=0, identical=0, reason=reason)


def _pairs(
    baseline: Iterable[RequestTrace], arm: Iterable[RequestTrace]
) -> list[tuple[RequestTrace, RequestTrace]]:
    theirs, mine = _by_prompt(baseline), _by_prompt(arm)
    return [
        pair
        for key, found in theirs.items()
        for pair in zip(found, mine.get(key, ()), strict=False)
    ]


def _by_prompt(traces: Iterable[RequestTrace]) -> dict[PromptKey, list[RequestTrace]]:
    found: dict[PromptKey, list[RequestTrace]] = {}
    for trace in traces:
        if is_complete(trace):
            found.setdefault(prompt_key(trace.request), []).append(trace)
    return found


def _asked(trace: RequestTrace) -> tuple[object, ...]:
    request = trace.request
    return request.messages, request.prompt, request.prompt_ids


def _equal(plain: RequestTrace, spec: RequestTrace) -> bool:
    if plain.output_ids is not None and spec.output_ids is not None:
        return plain.output_ids == spec.output_ids
    return plain.text == spec.text


def _difference(plain: RequestTrace, spec: RequestTrace, gap: Gap | None) -> Difference:
    """Where two outputs with known ids part, and how clear the target was there."""
    ours, theirs = spec.output_ids or (), plain.output_ids or ()
    shorter = min(len(ours), len(theirs))
    position = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
    return Difference(
        request_id=spec.request.request_id,
        position=position,
        baseline_token=theirs[position] if position < len(theirs) else None,
        arm_token=ours[position] if position < len(ours) else None,
        gap=gap(plain.request, theirs[:position]) if gap else None,
    )
