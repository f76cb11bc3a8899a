"""From the facts of one request to the sums that every metric starts from.

What a request says depends on how it was seen (Evidence): a field that its evidence cannot give
is None. Nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from specbench.columns import COUNTS, PARTS, Chunks, Steps
from specbench.estimate import Evidence
from specbench.request import Request
from specbench.trace import ArmRun, Finish, RequestTrace

PromptKey = tuple[str, str, int]
NO_STEPS = Steps.of(())


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSums:
    """Sums over one request's deliveries and verify steps.

    ``arrived`` are the deliveries that brought something, ``steps`` the steps, both as columns.
    ``completion`` counts output tokens, the prefill's included. ``first_tokens`` is what the
    first delivery held. ``drafted``, ``depth`` and ``accepted`` are sums over ``verify_steps``
    steps, before trimming; ``emitted`` is after it. ``histogram[j]`` counts steps that accepted
    j drafts. ``at_risk[i - 1]`` counts steps with accepted >= i - 1 and depth >= i. ``step_ns``
    adds up the wall times of the forwards that the request took part in.
    """

    trace: RequestTrace
    block: int
    evidence: Evidence
    arrived: Chunks
    steps: Steps
    prompt: PromptKey
    completion: int | None
    deliveries: int
    first_ns: int | None
    last_ns: int | None
    first_tokens: int | None
    verify_steps: int | None = None
    drafted: int | None = None
    depth: int | None = None
    accepted: int | None = None
    emitted: int | None = None
    histogram: tuple[int, ...] | None = None
    at_risk: tuple[int, ...] | None = None
    step_ns: int | None = None

    @property
    def category(self) -> str:
        """The prompt's category."""
        return self.trace.request.category

    @property
    def conversation(self) -> tuple[str, str]:
        """What is resampled as one: the turns of a conversation are not independent."""
        return self.prompt[:2]

    @property
    def decode_ns(self) -> int | None:
        """Last delivery - first delivery; None unless something came after the first."""
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns:
            return None
        return self.last_ns - self.first_ns

    @property
    def decode_tokens(self) -> int | None:
        """Tokens after the first delivery; n - 1 when no one said what that held (semantics 10)."""
        if self.completion is None:
            return None
        return self.completion - (1 if self.first_tokens is None else self.first_tokens)


def prompt_key(request: Request) -> PromptKey:
    """(workload, prompt, turn): what pairs the same question in two arms (semantics.md 11)."""
    return request.workload, request.prompt_id or request.request_id.split("#")[0], request.turn


def is_complete(trace: RequestTrace) -> bool:
    """True for a measured request that ended by itself: neither warm-up, failed nor cancelled."""
    return not trace.warmup and trace.finish in (Finish.STOP, Finish.LENGTH)


def complete_sums(runs: Iterable[ArmRun]) -> tuple[RequestSums, ...]:
    """The sums of every complete request of ``runs``, in order."""
    return tuple(
        sums_of(trace, block=run.block)
        for run in runs
        for trace in run.requests
        if is_complete(trace)
    )


def _completion(trace: RequestTrace, arrived: Chunks) -> int | None:
    """Output tokens: as the server said, else counted from ids, else from its chunks."""
    if trace.usage.completion_tokens is not None:
        return trace.usage.completion_tokens
    if trace.output_ids is not None:
        return len(trace.output_ids)
    return int(arrived.tokens.sum()) if len(arrived) and arrived.all_said else None


def sums_of(trace: RequestTrace, *, block: int = 0) -> RequestSums:
    """Add up one request. Its evidence is what the trace claims, or less where data is missing.

    >>> from specbench.metrics.example import trace_of
    >>> a = sums_of(trace_of([3, 2, 0, 1], depth=3))
    >>> a.verify_steps, a.accepted, a.completion, a.histogram, a.at_risk
    (4, 6, 11, (1, 1, 1, 1), (4, 3, 2))
    """
    seen = arrival_sums(trace, block=block, steps=Steps.of(trace.steps))
    if trace.evidence is Evidence.STEPS and (seen.steps or seen.completion in (0, 1)):
        return _with_steps(seen)
    return _with_usage(seen)


def arrival_sums(trace: RequestTrace, *, block: int = 0, steps: Steps = NO_STEPS) -> RequestSums:
    """What the deliveries of one request say, and nothing of its steps but that they are these."""
    arrived = Chunks.of(trace.chunks).delivered
    return RequestSums(
        trace=trace,
        block=block,
        evidence=Evidence.NONE,
        arrived=arrived,
        steps=steps,
        prompt=prompt_key(trace.request),
        completion=_completion(trace, arrived),
        deliveries=len(arrived),
        first_ns=int(arrived.at_ns[0]) if arrived else None,
        last_ns=int(arrived.at_ns[-1]) if arrived else None,
        first_tokens=arrived[0].tokens if arrived else None,
    )


def _with_steps(seen: RequestSums) -> RequestSums:
    steps = seen.steps
    total = dict(zip(COUNTS, steps.table.sum(axis=1).tolist(), strict=True))
    depth, accepted = steps.column("depth"), steps.column("accepted")
    deepest = int(depth.max(initial=0))
    reached = np.bincount(np.minimum(depth, accepted + 1), minlength=deepest + 1)
    at_risk = np.cumsum(reached[::-1])[::-1][1:]
    return replace(
        seen,
        evidence=Evidence.STEPS,
        verify_steps=len(steps),
        drafted=total["drafted"],
        depth=total["depth"],
        accepted=total["accepted"],
        emitted=total["emitted"],
        histogram=tuple(np.bincount(accepted, minlength=deepest + 1).tolist()),
        at_risk=tuple(at_risk.tolist()),
        step_ns=sum(total[part] for part in PARTS) or None,
    )


def _with_usage(seen: RequestSums) -> RequestSums:
    """What the server's totals give, no more than the trace claims."""
    usage, claimed = seen.trace.usage, seen.trace.evidence
    if usage.histogram is not None and claimed >= Evidence.HISTOGRAM:
        return replace(
            seen,
            evidence=Evidence.HISTOGRAM,
            verify_steps=sum(usage.histogram),
            drafted=usage.drafted,
            accepted=sum(j * count for j, count in enumerate(usage.histogram)),
            histogram=usage.histogram,
        )
    if usage.verify_steps is not None and claimed >= Evidence.TOTALS:
        return replace(
            seen,
            evidence=Evidence.TOTALS,
            verify_steps=usage.verify_steps,
            drafted=usage.drafted,
            accepted=usage.accepted,
        )
    if seen.completion is not None and seen.deliveries and claimed >= Evidence.CHUNKS:
        return replace(seen, evidence=Evidence.CHUNKS)
    return seen
