"""Where an arm's output tokens came from, and a name for those that do not add up (identity I1).

``completion = requests + accepted + bonus - trimmed + residual``: the prefill of each request gives
one token, each verify step its accepted drafts and one bonus token, and what a stop, max_tokens or
a grammar cut off the last step is trimmed. Seen step by step, trimming is counted and any residual
is a fault. From totals alone it is what is left, and its size says what it can be.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from specbench.estimate import Evidence
from specbench.metrics.sums import RequestSums


class Cause(enum.StrEnum):
    """What explains the difference of a request's counts."""

    NONE = "nothing is left over"
    TRIMMED = "tokens trimmed by a stop, max_tokens or a grammar"
    PREFILL = "the prefill token is not in the count of output tokens"
    FINISHED_ROWS = "steps were counted for requests that had finished"
    UNDRAFTED = "steps that drafted nothing were not counted"
    MISCOUNTED = "steps emitted other tokens than were counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAccount:
    """The sums over complete requests. ``trimmed`` is seen, or inferred where only totals are.

    ``causes`` holds, for every cause that occurred, the requests it explains.
    """

    completion: int
    prefill: int
    accepted: int
    bonus: int
    trimmed: int
    residual: int
    causes: tuple[tuple[Cause, int], ...]


def token_account(requests: Sequence[RequestSums]) -> TokenAccount | None:
    """The account of ``requests``; None when one of them says too little.

    >>> from specbench.metrics.example import run_of, trace_of
    >>> from specbench.metrics.sums import complete_sums
    >>> account = token_account(complete_sums([run_of(trace_of([3, 2, 0, 1], depth=3))]))
    >>> account.completion, account.prefill, account.accepted, account.bonus, account.residual
    (11, 1, 6, 4, 0)
    """
    if not requests or any(
        r.completion is None or r.accepted is None or r.verify_steps is None for r in requests
    ):
        return None
    trimmed, found = 0, dict.fromkeys(Cause, 0)
    for request in requests:
        cause = cause_of(request)
        found[cause] += 1
        if request.emitted is not None:
            trimmed += _made(request) - request.emitted
        elif cause is Cause.TRIMMED:
            trimmed -= left_over(request)
    completion, accepted, bonus = (
        sum(values)
        for values in zip(
            *((r.completion or 0, r.accepted or 0, r.verify_steps or 0) for r in requests),
            strict=True,
        )
    )
    return TokenAccount(
        completion=completion,
        prefill=len(requests),
        accepted=accepted,
        bonus=bonus,
        trimmed=trimmed,
        residual=completion - len(requests) - accepted - bonus + trimmed,
        causes=tuple((cause, count) for cause, count in found.items() if count),
    )


def _made(request: RequestSums) -> int:
    return (request.accepted or 0) + (request.verify_steps or 0)


def left_over(request: RequestSums) -> int:
    """Output tokens that prefill and steps do not explain; below 0 where they explain too many."""
    made = _made(request) if request.emitted is None else request.emitted
    return (request.completion or 0) - 1 - made


def cause_of(request: RequestSums) -> Cause:
    """The name of what is left over.

    A stop cuts only the last step, so it trims no more than that step's drafts. The prefill's
    token counts as missing only where nothing else could be cut: every step gave one token.
    """
    left = left_over(request)
    if left == 0:
        return Cause.NONE
    if request.emitted is not None:
        return Cause.PREFILL if left == -1 else Cause.MISCOUNTED
    if left > 0:
        return Cause.UNDRAFTED
    if -left <= _deepest(request):
        return Cause.TRIMMED
    return Cause.PREFILL if left == -1 else Cause.FINISHED_ROWS


def _deepest(request: RequestSums) -> int:
    """Most drafts that one step accepted; from totals, no more than all of them."""
    if request.evidence >= Evidence.HISTOGRAM and request.histogram is not None:
        return max((j for j, count in enumerate(request.histogram) if count), default=0)
    return request.accepted or 0
