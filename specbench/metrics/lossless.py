"""Does an arm say what plain decoding says? Tokens against tokens, prompt by prompt.

========================  ===================================================================
verdict                   when
========================  ===================================================================
exact                     every compared greedy output has the tokens of the baseline's
tie_only                  outputs differ, first where the target's two best scores are closer
                          than 1e-5 (relative): rounding decides there (semantics.md 18)
lossy                     some output differs first where the target had a clear favourite
inconclusive              sampled, nothing to compare, or a difference that no one can judge
========================  ===================================================================
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specbench.metrics.sums import PromptKey, is_complete, prompt_key
from specbench.request import Request
from specbench.trace import RequestTrace

TIE = 1e-5
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
    """A verdict, what it rests on, and every output that differs."""

    verdict: Verdict
    compared: int
    identical: int
    differences: tuple[Difference, ...] = ()
    reason: str = ""


def judge(
    baseline: Iterable[RequestTrace], arm: Iterable[RequestTrace], *, gap: Gap | None = None
) -> Lossless:
    """Compare the complete greedy outputs of two arms, paired by prompt, turn and repeat.

    A later turn is compared only if both arms were asked the same; after a tie in an earlier
    reply they were not. Where ids are missing on both sides, equal text counts as identical.

    Args:
        baseline: traces of plain decoding.
        arm: traces of the arm.
        gap: the target's relative gap of its two best scores after a prompt and output prefix
            (``backends.base.GapProbe.top2_gap``); without it a difference cannot be judged.
    """
    pairs = _pairs(baseline, arm)
    if not pairs:
        return _inconclusive("no prompt was answered by both arms")
    if any(not trace.request.sampling.greedy for pair in pairs for trace in pair):
        return _inconclusive("sampled outputs differ by design")
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
    verdict, reason = _verdict(differences)
    return Lossless(
        verdict=verdict,
        compared=len(same_question),
        identical=identical,
        differences=differences,
        reason=reason,
    )


def _verdict(differences: Sequence[Difference]) -> tuple[Verdict, str]:
    if not differences:
        return Verdict.EXACT, ""
    clear = [d for d in differences if d.gap is not None and d.gap >= TIE]
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
