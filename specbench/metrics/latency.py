"""Latency as the client sees it: facts of deliveries, in nanoseconds, and their percentiles in ms.

TTFT, TPOT, chunk gap and end-to-end are four figures, never one (glossary). A *chunk gap* is the
time between deliveries, close to a step's time under speculation; *TPOT* spreads a request's
decode time over its tokens. Neither is called ITL, a word that tools use for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from specbench.columns import IntArray
from specbench.metrics.pool import Pool
from specbench.metrics.stats import Numbers, percentiles
from specbench.metrics.sums import RequestSums
from specbench.trace import RequestTrace

NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Percentiles over requests (chunk gaps: over gaps), in ms; None where nothing was seen.

    ``response`` is first delivery - due: with a schedule (open loop) it is what a user waits, and
    a client or server that falls behind cannot hide in it (coordinated omission). ``tpot_exact`` is
    False where a TPOT divides by n - 1, since a first delivery did not say what it held.
    """

    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    tpot_ms_p50: float | None
    tpot_ms_p99: float | None
    chunk_gap_ms_p50: float | None
    chunk_gap_ms_p99: float | None
    end_to_end_ms_p50: float | None
    end_to_end_ms_p99: float | None
    lag_ms_p50: float | None = None
    lag_ms_p99: float | None = None
    response_ms_p50: float | None = None
    response_ms_p99: float | None = None
    tpot_exact: bool = True


def ttft_ns(request: RequestSums) -> int | None:
    """First non-empty delivery - sent. Time spent waiting to be sent is not in it: see the lag."""
    if request.first_ns is None:
        return None
    return request.first_ns - request.trace.sent_ns


def response_ns(request: RequestSums) -> int | None:
    """First non-empty delivery - due: TTFT with the wait to be sent."""
    if request.first_ns is None:
        return None
    return request.first_ns - request.trace.due_ns


def schedule_lag_ns(trace: RequestTrace) -> int:
    """Sent - due: how late the load generator was."""
    return trace.sent_ns - trace.due_ns


def end_to_end_ns(request: RequestSums) -> int | None:
    """Last non-empty delivery - sent."""
    if request.last_ns is None:
        return None
    return request.last_ns - request.trace.sent_ns


def tpot_ns(request: RequestSums) -> float | None:
    """Time per output token: (last - first) / (n - tokens of the first chunk) (semantics.md 10).

    None for a request whose tokens all came at once.

    >>> from specbench.metrics.example import trace_of
    >>> from specbench.metrics.sums import sums_of
    >>> tpot_ns(sums_of(trace_of([3, 2, 0, 1], depth=3, step_ms=10))) / 1e6
    4.0
    """
    decode, tokens = request.decode_ns, request.decode_tokens
    if decode is None or tokens is None or tokens < 1:
        return None
    return decode / tokens


def tpot_is_exact(requests: Iterable[RequestSums]) -> bool:
    """False when some first delivery did not say what it held, so that n - 1 was used.

    The evidence of what rests on it is then CHUNKS at most (semantics.md 10).
    """
    return all(request.first_tokens is not None or tpot_ns(request) is None for request in requests)


def chunk_gaps_ns(request: RequestSums) -> IntArray:
    """Times between successive non-empty deliveries, shape (deliveries - 1,)."""
    return np.diff(request.arrived.at_ns)


def latency(requests: Sequence[RequestSums]) -> Latency:
    """All percentiles of ``requests``."""
    pool = Pool.of(requests)
    ttft, tpot, whole = (_known_ms(pool.column(of)) for of in (ttft_ns, tpot_ns, end_to_end_ns))
    lag, response = (_known_ms(pool.column(of)) for of in (_lag_ns, response_ns))
    gap = _known_ms(pool.chunk_gaps_ns)
    return Latency(
        ttft_ms_p50=ttft[0],
        ttft_ms_p99=ttft[1],
        tpot_ms_p50=tpot[0],
        tpot_ms_p99=tpot[1],
        chunk_gap_ms_p50=gap[0],
        chunk_gap_ms_p99=gap[1],
        end_to_end_ms_p50=whole[0],
        end_to_end_ms_p99=whole[1],
        lag_ms_p50=lag[0],
        lag_ms_p99=lag[1],
        response_ms_p50=response[0],
        response_ms_p99=response[1],
        tpot_exact=tpot_is_exact(requests),
    )


def _lag_ns(request: RequestSums) -> int:
    return schedule_lag_ns(request.trace)


def _known_ms(values_ns: Numbers) -> tuple[float | None, float | None]:
    """p50 and p99 in ms of what is known; None when nothing is."""
    p50, p99 = percentiles(values_ns[~np.isnan(values_ns)], (50, 99))
    return _ms(p50), _ms(p99)


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS
