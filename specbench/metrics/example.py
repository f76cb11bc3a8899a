"""Small traces for docstrings, tests and the ledger of definitions: a chain's accepted counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from specbench.estimate import Evidence
from specbench.request import Request
from specbench.trace import ArmRun, Chunk, Finish, RequestTrace, StepTrace, Usage

MS = 1_000_000


def trace_of(
    accepted: Sequence[int],
    *,
    depth: int,
    drafted: int | None = None,
    name: str = "A",
    step_ms: float | Sequence[float] = 10.0,
    first_step: int = 0,
) -> RequestTrace:
    """A request at batch 1 whose verify steps accepted ``accepted``, nothing trimmed.

    The prefill delivers one token 20 ms after sending; then each step takes ``step_ms`` (one for
    all, or one each) and delivers accepted + 1. ``drafted`` nodes are verified per step
    (``depth``, a chain, by default). ``first_step`` is the number of the first forward.
    """
    each = [step_ms] * len(accepted) if isinstance(step_ms, int | float) else step_ms
    took = [round(ms * MS) for ms in each]
    nodes = depth if drafted is None else drafted
    steps = tuple(
        StepTrace(
            batch_step=first_step + index,
            batch=1,
            committed=10,
            drafted=nodes,
            depth=depth,
            accepted=kept,
            emitted=kept + 1,
            verify_ns=ns,
        )
        for index, (kept, ns) in enumerate(zip(accepted, took, strict=True))
    )
    ends = accumulate(took, initial=20 * MS)
    chunks = tuple(
        Chunk(at_ns=at_ns, tokens=tokens)
        for at_ns, tokens in zip(ends, (1, *(kept + 1 for kept in accepted)), strict=True)
    )
    return RequestTrace(
        request=Request(request_id=name, prompt=name, prompt_id=name),
        due_ns=0,
        sent_ns=0,
        end_ns=chunks[-1].at_ns,
        chunks=chunks,
        steps=steps,
        finish=Finish.LENGTH,
        evidence=Evidence.STEPS,
        usage=Usage(completion_tokens=1 + sum(kept + 1 for kept in accepted)),
    )


def run_of(*traces: RequestTrace, point_id: str = "k3", block: int = 0) -> ArmRun:
    """One block of one arm at batch 1 that holds ``traces``."""
    return ArmRun(
        point_id=point_id,
        workload="example",
        batch_size=1,
        temperature=0.0,
        block=block,
        started_ns=0,
        wall_ns=sum(trace.end_ns for trace in traces),
        requests=traces,
    )
