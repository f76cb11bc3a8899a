"""A reader's view of a stream: does text arrive as fast as it is read?

Speculation delivers in bursts: the mean time per token falls while the longest wait may not. The
stream is replayed against a reader of r tokens/s who starts at the first delivery and reads a
token only when it has arrived; waiting after that start is *stalled time*. The fastest reader who
never waits reads ``min_j (tokens before delivery j) / (time of j - time of the first)`` tokens/s:
the *stall-free rate*, the slowest stretch of the stream as seen from its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.metrics.stats import FloatArray, percentile
from specbench.metrics.sums import RequestSums

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Over the requests whose deliveries say their tokens; ``requests`` counts them.

    ``stall_free_p50`` is what a reader of the median request may read in tokens/s without a wait,
    ``stall_free_p1`` what suffices for 99 in 100. ``stalled_s`` and ``stalled_requests`` are for a
    reader of ``tok_s`` tokens/s: mean wait per request, and requests with any; None without one.
    """

    requests: int
    stall_free_p50: float | None
    stall_free_p1: float | None
    tok_s: float | None
    stalled_s: float | None
    stalled_requests: int | None


def reading(requests: Sequence[RequestSums], tok_s: float | None = None) -> Reading | None:
    """Replay every stream; None when no delivery said how many tokens it held."""
    streams = [stream for r in requests if (stream := _stream(r)) is not None]
    if not streams:
        return None
    rates = [rate for stream in streams if (rate := _stall_free(*stream)) is not None]
    waits = None if tok_s is None else [_stalled(*stream, tok_s) for stream in streams]
    return Reading(
        requests=len(streams),
        stall_free_p50=percentile(rates, 50),
        stall_free_p1=percentile(rates, 1),
        tok_s=tok_s,
        stalled_s=None if waits is None else sum(waits) / len(waits),
        stalled_requests=None if waits is None else sum(wait > 0 for wait in waits),
    )


def stall_free_tok_s(request: RequestSums) -> float | None:
    """The fastest reading in tokens/s that never waits; None for a single delivery.

    >>> from specbench.metrics.example import trace_of
    >>> from specbench.metrics.sums import sums_of
    >>> round(stall_free_tok_s(sums_of(trace_of([3, 0, 0], depth=3, step_ms=100))), 6)
    10.0
    """
    stream = _stream(request)
    return None if stream is None else _stall_free(*stream)


def stalled_s(request: RequestSums, tok_s: float) -> float | None:
    """Seconds that a reader of ``tok_s`` tokens/s waits after the first delivery."""
    stream = _stream(request)
    return None if stream is None else _stalled(*stream, tok_s)


def _stream(request: RequestSums) -> tuple[FloatArray, FloatArray] | None:
    """Seconds since the first delivery, and tokens, of each delivery."""
    chunks = request.arrived
    if not chunks or not chunks.all_said:
        return None
    return (chunks.at_ns - chunks.at_ns[0]) / NS_PER_S, chunks.tokens.astype(np.float64)


def _stall_free(at: FloatArray, tokens: FloatArray) -> float | None:
    later = at > 0
    if not later.any():
        return None
    before = np.cumsum(tokens) - tokens
    return float((before[later] / at[later]).min())


def _stalled(at: FloatArray, tokens: FloatArray, tok_s: float) -> float:
    """The reader is held up to the latest (arrival - time to read what came before)."""
    before = np.cumsum(tokens) - tokens
    return max(0.0, float((at - before / tok_s).max()))
