"""From the facts of one request to the sums that every metric starts from.

What a request says depends on how it was seen (Evidence): a field that its evidence cannot give
is None. Nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specbench.columns import PARTS, Chunks, IntArray, Steps
from specbench.estimate import Evidence
from specbench.request import Request
from specbench.trace import ArmRun, Finish, RequestTrace

PromptKey = tuple[str, str, int]
NO_STEPS = Steps.of(())
WHOLE = "all"
_SHOWN = ("drafted", "depth", "accepted", "emitted")
_ADDED = (*_SHOWN, *PARTS)
_TOGETHER = 512  # requests whose steps are added up at once


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSums:
    """Sums over one request's deliveries and verify steps.

    ``arrived`` are the deliveries that brought something, ``steps`` the steps, both as columns.
    ``completion`` counts output tokens, the prefill's included. ``first_tokens`` is what the
    first delivery held. ``drafted``, ``depth`` and ``accepted`` are sums over ``verify_steps``
    steps, before trimming; ``emitted`` is after it. ``histogram[j]`` counts steps that accepted
    j drafts. ``at_risk[i - 1]`` counts steps with accepted >= i - 1 and depth >= i. ``step_ns``
    adds up the wall times of the forwards that the request took part in. Of a server that totals
    drafts without steps, ``drafted`` and ``accepted`` are known and ``verify_steps`` is not.
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
        """The prompt's category; one called ``all`` must not pass for the whole of the arm."""
        name = self.trace.request.category
        return f"{name} (category)" if name == WHOLE else name

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
    complete = [(t, run.block) for run in runs for t in run.requests if is_complete(t)]
    batches = (complete[at : at + _TOGETHER] for at in range(0, len(complete), _TOGETHER))
    return tuple(sums for batch in batches for sums in _sums(batch))


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
    return _sums([(trace, block)])[0]


def _sums(traces: Sequence[tuple[RequestTrace, int]]) -> list[RequestSums]:
    """The sums of traces with their blocks; steps are added up for all of them at once."""
    steps = [Steps.of(trace.steps) for trace, _ in traces]
    seen = [_arrival(*at, its) for at, its in zip(traces, steps, strict=True)]
    stepped = [
        i
        for i, fields in enumerate(seen)
        if traces[i][0].evidence is Evidence.STEPS and (steps[i] or fields["completion"] in (0, 1))
    ]
    totals = dict(zip(stepped, _step_totals([steps[i] for i in stepped]), strict=True))
    return [
        RequestSums(**fields, **(totals[i] if i in totals else _usage_totals(fields)))
        for i, fields in enumerate(seen)
    ]


def arrival_sums(trace: RequestTrace, *, block: int = 0, steps: Steps = NO_STEPS) -> RequestSums:
    """What the deliveries of one request say, and nothing of its steps but that they are these."""
    return RequestSums(**_arrival(trace, block, steps), evidence=Evidence.NONE)


def _arrival(trace: RequestTrace, block: int, steps: Steps) -> dict[str, Any]:
    """The fields of RequestSums that the deliveries give."""
    arrived = Chunks.of(trace.chunks).delivered
    return {
        "trace": trace,
        "block": block,
        "arrived": arrived,
        "steps": steps,
        "prompt": prompt_key(trace.request),
        "completion": _completion(trace, arrived),
        "deliveries": len(arrived),
        "first_ns": int(arrived.at_ns[0]) if arrived else None,
        "last_ns": int(arrived.at_ns[-1]) if arrived else None,
        "first_tokens": arrived[0].tokens if arrived else None,
    }


def _step_totals(found: Sequence[Steps]) -> list[dict[str, Any]]:
    """The fields of RequestSums that the steps of each request give."""
    if not found:
        return []
    lengths = np.array([len(steps) for steps in found], dtype=np.int64)
    owner = np.repeat(np.arange(len(found)), lengths)
    whole = Steps(table=np.concatenate([s.table for s in found], axis=1), ends=owner, ranks=owner)
    totals = {name: _by_owner(owner, whole.column(name), len(found)) for name in _ADDED}
    depth, accepted = whole.column("depth"), whole.column("accepted")
    deepest = np.zeros(len(found), dtype=np.int64)
    np.maximum.at(deepest, owner, depth)
    width = int(deepest.max()) + 1
    histogram = _counts(owner, accepted, len(found), width)
    reached = _counts(owner, np.minimum(depth, accepted + 1), len(found), width)
    at_risk = np.cumsum(reached[:, ::-1], axis=1)[:, ::-1]
    wall_ns = np.sum([totals[part] for part in PARTS], axis=0)
    rows = zip(
        lengths.tolist(),
        *(totals[name].tolist() for name in _SHOWN),
        wall_ns.tolist(),
        (deepest + 1).tolist(),
        histogram.tolist(),
        at_risk.tolist(),
        strict=True,
    )
    return [
        {
            "evidence": Evidence.STEPS,
            "verify_steps": steps,
            "drafted": drafted,
            "depth": depth,
            "accepted": accepted,
            "emitted": emitted,
            "step_ns": ns or None,
            "histogram": tuple(counts[:levels]),
            "at_risk": tuple(risk[1:levels]),
        }
        for steps, drafted, depth, accepted, emitted, ns, levels, counts, risk in rows
    ]


def _by_owner(owner: IntArray, values: IntArray, count: int) -> IntArray:
    """``values`` added up by owner, shape (count,)."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, owner, values)
    return total


def _counts(owner: IntArray, values: IntArray, count: int, width: int) -> IntArray:
    """How often each owner has each of the values 0 ... width - 1, shape (count, width)."""
    flat = np.bincount(owner * width + values, minlength=count * width)
    return flat.reshape(count, width)


def _usage_totals(seen: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of RequestSums that the server's totals give, no more than the trace claims."""
    usage, claimed = seen["trace"].usage, seen["trace"].evidence
    if usage.histogram is not None and claimed >= Evidence.HISTOGRAM:
        return {
            "evidence": Evidence.HISTOGRAM,
            "verify_steps": sum(usage.histogram),
            "drafted": usage.drafted,
            "accepted": sum(j * count for j, count in enumerate(usage.histogram)),
            "histogram": usage.histogram,
        }
    if usage.verify_steps is not None and claimed >= Evidence.TOTALS:
        return {
            "evidence": Evidence.TOTALS,
            "verify_steps": usage.verify_steps,
            "drafted": usage.drafted,
            "accepted": usage.accepted,
        }
    # llama.cpp totals drafts and no steps: their share is known, nothing per step is.
    drafts = {"drafted": usage.drafted, "accepted": usage.accepted}
    if usage.verify_steps is not None or claimed < Evidence.TOTALS:
        drafts = {}
    if seen["completion"] is not None and seen["deliveries"] and claimed >= Evidence.CHUNKS:
        return {"evidence": Evidence.CHUNKS, **drafts}
    return {"evidence": Evidence.NONE, **drafts}
