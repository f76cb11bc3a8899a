"""Identities that hold exactly in every healthy run; a residual names what is counted wrong.

====  ============================================================  ==================
name  identity                                                      needs
====  ============================================================  ==================
I1    completion = 1 + sum (a + 1) - trimmed, per request           STEPS
I1    completion <= 1 + sum (a + 1), per request                    TOTALS
I2    sum a = sum j hist[j] and V = sum hist[j], server's totals    HISTOGRAM
I3    sum_i survival_i = sum a / V                                  HISTOGRAM
I4    survival_i = product of conditional_m for m <= i              one drafted depth
I5    tokens per later delivery = tokens emitted per step           one delivery a step
====  ============================================================  ==================

I5 is the identity chunk gap ÷ TPOT = accept length in counts. It fails when a server merges or
splits deliveries, so it is a property of the stream, not an error of counting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from specbench.estimate import Evidence
from specbench.metrics.acceptance import (
    conditional,
    emitted_length,
    histogram,
    survival,
)
from specbench.metrics.account import cause_of
from specbench.metrics.pool import Pool
from specbench.metrics.sums import RequestSums

TOLERANCE = 1e-9
COALESCED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """An identity that does not hold. ``where`` is a request id, or ``pooled``."""

    name: str
    where: str
    residual: float
    text: str


def residuals(requests: Sequence[RequestSums]) -> tuple[Residual, ...]:
    """What breaks I1 to I4; empty when all that can be checked holds.

    >>> from specbench.metrics.example import run_of, trace_of
    >>> from specbench.metrics.sums import complete_sums
    >>> residuals(complete_sums([run_of(trace_of([3, 2, 0, 1], depth=3))]))
    ()
    """
    pool = Pool.of(requests)
    found: list[Residual] = []
    for request in pool:
        found.extend(_completion(request))
        found.extend(_server_totals(request))
    found.extend(_survival_sum(pool))
    found.extend(_conditional_product(pool))
    return tuple(found)


def _completion(request: RequestSums) -> Iterable[Residual]:
    """I1: tokens that steps emitted, and the prefill's one, are the tokens that were counted."""
    if request.completion is None or not request.verify_steps:
        return
    where = request.trace.request.request_id
    if request.emitted is not None:
        off = request.completion - 1 - request.emitted
        if off:
            yield Residual(
                name="I1",
                where=where,
                residual=off,
                text=f"{request.completion} output tokens, but the prefill and "
                f"{request.verify_steps} steps emitted {request.emitted + 1}: "
                f"{cause_of(request).value}",
            )
    elif request.accepted is not None:
        most = 1 + request.accepted + request.verify_steps
        if request.completion > most:
            yield Residual(
                name="I1",
                where=where,
                residual=request.completion - most,
                text=f"{request.completion} output tokens, but {request.verify_steps} steps that "
                f"accepted {request.accepted} drafts can give at most {most}: "
                f"{cause_of(request).value}",
            )


def _server_totals(request: RequestSums) -> Iterable[Residual]:
    """I2: what the server totals say equals what was seen in finer grain."""
    usage = request.trace.usage
    if request.evidence < Evidence.HISTOGRAM:
        return
    for what, told, seen in (
        ("verify steps", usage.verify_steps, request.verify_steps),
        ("accepted drafts", usage.accepted, request.accepted),
    ):
        if told is not None and seen is not None and told != seen:
            yield Residual(
                name="I2",
                where=request.trace.request.request_id,
                residual=told - seen,
                text=f"the server totals {told} {what}, its "
                f"{'steps' if request.evidence is Evidence.STEPS else 'histogram'} hold {seen}",
            )


def _survival_sum(requests: Sequence[RequestSums]) -> Iterable[Residual]:
    """I3: survival adds up to accepted drafts per step."""
    shares, counts = survival(requests), histogram(requests)
    if shares is None or counts is None:
        return
    accepted = sum(request.accepted or 0 for request in requests)
    steps = sum(request.verify_steps or 0 for request in requests)
    off = math.fsum(shares) - accepted / steps
    if abs(off) > TOLERANCE * max(1.0, accepted / steps):
        yield Residual(
            name="I3",
            where="pooled",
            residual=off,
            text=f"survival adds up to {math.fsum(shares):.6f}, accepted per step is "
            f"{accepted / steps:.6f}",
        )


def _conditional_product(requests: Sequence[RequestSums]) -> Iterable[Residual]:
    """I4, where every step drafted the same depth."""
    shares, chances = survival(requests), conditional(requests)
    if shares is None or chances is None or not _one_depth(requests):
        return
    product = 1.0
    for level, (share, chance) in enumerate(zip(shares, chances, strict=True), start=1):
        product *= chance or 0.0
        if abs(product - share) > TOLERANCE:
            yield Residual(
                name="I4",
                where="pooled",
                residual=share - product,
                text=f"survival_{level} is {share:.6f}, the product of conditional_1 to "
                f"conditional_{level} is {product:.6f}",
            )


def _one_depth(requests: Sequence[RequestSums]) -> bool:
    pool = Pool.of(requests)
    if pool.weakest is not Evidence.STEPS:
        return True
    depths = pool.steps("depth")
    return bool(len(depths)) and bool((depths == depths[0]).all())


def merged_deliveries(requests: Sequence[RequestSums]) -> float | None:
    """I5: tokens per later delivery ÷ tokens emitted per step; 1.0 when each step arrives alone.

    Above 1 deliveries are merged, below 1 split. None when steps or deliveries were not seen.
    """
    per_step = emitted_length(requests)
    if per_step is None or per_step.evidence < Evidence.TOTALS:
        return None
    pool = Pool.of(requests)
    tokens = pool.total("decode_tokens")
    if tokens is None or not pool.knows("first_tokens"):
        return None
    later = int(np.maximum(pool.column("deliveries") - 1, 0).sum())
    return tokens / later / per_step.value if later and tokens else None
