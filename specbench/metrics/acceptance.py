"""Acceptance: how many tokens a verify step emits, and where drafts are lost.

Symbols: a request r has V verify steps; a step drafts to depth k over n nodes and accepts a of
them. Every step adds one token of the target's own, the bonus. The prefill emits one token.

===================  ==================================  ============================
function             formula                             needs
===================  ==================================  ============================
accept_length        1 + sum a / sum V (the headline)    TOTALS
emitted_length       (sum completion - R) / sum V        TOTALS; CHUNKS: a guess
accept_rate_depth    sum a / sum k                       STEPS, or TOTALS of a chain
accept_rate_node     sum a / sum n                       TOTALS
survival             P(a >= i) over all steps            HISTOGRAM
conditional          P(a >= i | a >= i - 1, k >= i)      STEPS, or HISTOGRAM of a chain
histogram            steps by a                          HISTOGRAM
===================  ==================================  ============================

A function whose evidence is too weak, or that has nothing to count, returns None: missing is
never 0. Pooled figures weigh every verify step alike; intervals resample conversations
(semantics.md 9, 15, 19). Other tools' names for these are in ``definitions.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from specbench.columns import IntArray
from specbench.estimate import Estimate, Evidence
from specbench.metrics.pool import Field, Pool
from specbench.metrics.stats import FloatArray, Interval, log_linear
from specbench.metrics.sums import RequestSums

Requests = Sequence[RequestSums]
TOKENS_PER_STEP = "tokens/step"


def weakest(requests: Requests) -> Evidence:
    """The evidence that all of ``requests`` have; NONE when there are none."""
    return Pool.of(requests).weakest


def clustered(requests: Requests, row: Callable[[RequestSums], Sequence[float]]) -> FloatArray:
    """``row`` of each request, summed over the turns and repeats of its conversation.

    Returns:
        Shape (conversations, values of a row): the units that are resampled.
    """
    if not requests:
        return np.zeros((0, 1))
    rows = np.array([row(request) for request in requests], dtype=np.float64)
    return Pool.of(requests).add_up(*rows.T)


def as_estimate(interval: Interval | None, *, unit: str, evidence: Evidence) -> Estimate | None:
    """An interval with its unit and evidence; None stays None."""
    if interval is None:
        return None
    return Estimate(
        value=interval.value,
        low=interval.low,
        high=interval.high,
        n=interval.n,
        unit=unit,
        evidence=evidence,
        log_error=interval.log_error,
    )


def accept_length(requests: Requests) -> Estimate | None:
    """Headline accept length: tokens per verify step, pooled, bonus counted, before trimming.

    1 + sum a / sum V. The prefill token is not in it (semantics.md 9). Unit: tokens/step.

    >>> from specbench.metrics.example import run_of, trace_of
    >>> from specbench.metrics.sums import complete_sums
    >>> run = run_of(trace_of([3, 2, 0, 1], depth=3), trace_of([0, 0], depth=3, name="B"))
    >>> accept_length(complete_sums([run])).value
    2.0
    """
    pool = Pool.of(requests)
    if pool.weakest < Evidence.TOTALS or not pool.knows("accepted"):
        return None
    steps = pool.counts("verify_steps")
    rows = pool.add_up(pool.counts("accepted") + steps, steps)
    return at_least_one(
        as_estimate(log_linear(rows, (1, -1)), unit=TOKENS_PER_STEP, evidence=pool.weakest)
    )


def emitted_length(requests: Requests) -> Estimate | None:
    """Tokens emitted per verify step, after trimming: what speed follows (semantics.md 9).

    (sum completion - requests) / sum V. With CHUNKS alone it is (tokens after the first
    delivery) / (deliveries after the first): right only while one delivery is one step.
    Unit: tokens/step.
    """
    pool = Pool.of(requests)
    if pool.weakest < Evidence.CHUNKS or not pool.knows("completion"):
        return None
    if pool.weakest is Evidence.CHUNKS:
        tokens, steps = pool.counts("decode_tokens"), np.maximum(pool.counts("deliveries") - 1, 0)
    else:
        tokens = np.maximum(pool.counts("completion") - 1, 0)
        steps = pool.counts("verify_steps")
    return as_estimate(
        log_linear(pool.add_up(tokens, steps), (1, -1)),
        unit=TOKENS_PER_STEP,
        evidence=pool.weakest,
    )


def at_least_one(estimate: Estimate | None) -> Estimate | None:
    """Cut an interval of an accept length at 1, under which none can lie."""
    if estimate is None or estimate.low is None or estimate.low >= 1:
        return estimate
    return Estimate(
        value=estimate.value,
        low=1.0,
        high=estimate.high,
        n=estimate.n,
        unit=estimate.unit,
        evidence=estimate.evidence,
        caveats=estimate.caveats,
    )


def request_accept_lengths(requests: Requests) -> tuple[float, ...]:
    """1 + a / V of each request that has a step: a distribution, never the headline."""
    return tuple(
        1 + request.accepted / request.verify_steps
        for request in requests
        if request.accepted is not None and request.verify_steps
    )


def accept_rate_depth(requests: Requests, *, chain: bool = False) -> Estimate | None:
    """Accepted drafts ÷ drafted depth, pooled: 1.0 is a draft that is never wrong.

    Args:
        requests: of one arm.
        chain: the arm drafts a chain, whose nodes are its depth, so that TOTALS suffice.
    """
    pool = Pool.of(requests)
    if pool.weakest is Evidence.STEPS:
        return _share(pool, "accepted", "depth")
    return accept_rate_node(pool) if chain else None


def accept_rate_node(requests: Requests) -> Estimate | None:
    """Accepted drafts ÷ nodes given to verification (root not counted), pooled.

    Low by construction for a tree, of which at most one path is kept. It is the one figure of
    acceptance that needs no verify steps: llama.cpp totals its drafts alone.
    """
    return _share(Pool.of(requests), "accepted", "drafted")


def _share(pool: Pool, top: Field, bottom: Field) -> Estimate | None:
    """sum top / sum bottom with its interval; None when any of them is not known."""
    hits, total = pool.total(top), pool.total(bottom)
    if hits is None or not total:
        return None
    rows = pool.add_up(pool.column(top), pool.column(bottom))
    interval = log_linear(rows, (1, -1))
    if interval is None:
        interval = Interval(value=hits / total, low=None, high=None, n=len(rows))
    evidence = max(pool.weakest, Evidence.TOTALS)  # both are totals that a server told
    return as_estimate(interval, unit="ratio", evidence=evidence)


def histogram(requests: Requests) -> tuple[int, ...] | None:
    """Verify steps by accepted drafts: index j counts the steps that accepted j."""
    pool = Pool.of(requests)
    return None if pool.weakest < Evidence.HISTOGRAM else _summed(pool.histograms)


def survival(requests: Requests) -> tuple[float, ...] | None:
    """survival_i = P(a >= i) for i = 1 ... deepest, over all verify steps (unconditional).

    >>> from specbench.metrics.example import run_of, trace_of
    >>> from specbench.metrics.sums import complete_sums
    >>> run = run_of(trace_of([3, 2, 0, 1], depth=3), trace_of([0, 0], depth=3, name="B"))
    >>> [round(share, 3) for share in survival(complete_sums([run]))]
    [0.5, 0.333, 0.167]
    """
    counts = histogram(requests)
    if counts is None or sum(counts) == 0:
        return None
    reached = np.cumsum(counts[::-1])[::-1]
    return tuple(float(share) for share in reached[1:] / sum(counts))


def conditional(requests: Requests) -> tuple[float | None, ...] | None:
    """conditional_i = P(a >= i | a >= i - 1 and depth >= i) (semantics.md 15).

    An entry is None where no step got that far. From histograms alone only when the drafted
    totals prove that every step drafted the full depth of a chain.
    """
    requests = Pool.of(requests)
    counts, at_risk = histogram(requests), _at_risk(requests)
    if counts is None or at_risk is None:
        return None
    reached = np.cumsum(counts[::-1])[::-1][1:]
    return tuple(
        float(hits / risk) if risk else None for hits, risk in zip(reached, at_risk, strict=True)
    )


def _at_risk(requests: Requests) -> tuple[int, ...] | None:
    """Steps with a >= i - 1 and depth >= i, for i = 1 ... deepest."""
    counts = histogram(requests)
    if counts is None:
        return None
    deepest = len(counts) - 1
    pool = Pool.of(requests)
    if pool.weakest is Evidence.STEPS:
        return _summed(pool.at_risk)
    full = bool((pool.column("drafted") == pool.counts("verify_steps") * deepest).all())
    return tuple(int(n) for n in np.cumsum(counts[::-1])[::-1][:-1]) if full else None


def _summed(table: IntArray) -> tuple[int, ...]:
    return tuple(table.sum(axis=0).tolist())
