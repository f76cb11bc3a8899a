import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.metrics.example import MS, trace_of
from specbench.metrics.reading import reading, stall_free_tok_s, stalled_s
from specbench.metrics.sums import RequestSums, sums_of
from specbench.trace import Chunk

streams = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 8)), min_size=1, max_size=12)


def stream_of(gaps: list[tuple[int, int]], first: int = 1) -> RequestSums:
    """Deliveries of some tokens, each some ms after the one before."""
    at, chunks = 20 * MS, [Chunk(at_ns=20 * MS, tokens=first)]
    for gap, tokens in gaps:
        at += gap * MS
        chunks.append(Chunk(at_ns=at, tokens=tokens))
    return sums_of(dataclasses.replace(trace_of([0], depth=0), chunks=tuple(chunks)))


def read_token_by_token(request: RequestSums, tok_s: float) -> float:
    """The definition, one token at a time."""
    chunks = request.trace.chunks
    arrivals = [c.at_ns / 1e9 for c in chunks for _ in range(c.tokens or 0)]
    free, waited = arrivals[0], 0.0
    for arrival in arrivals:
        waited += max(0.0, arrival - free)
        free = max(free, arrival) + 1 / tok_s
    return waited


@given(streams, st.integers(1, 8), st.floats(0.5, 500))
def test_stalled_time_is_that_of_reading_token_by_token(
    gaps: list[tuple[int, int]], first: int, tok_s: float
) -> None:
    request = stream_of(gaps, first)
    assert stalled_s(request, tok_s) == pytest.approx(read_token_by_token(request, tok_s), abs=1e-9)


@given(streams, st.integers(1, 8))
def test_stall_free_rate_is_the_edge(gaps: list[tuple[int, int]], first: int) -> None:
    request = stream_of(gaps, first)
    rate = stall_free_tok_s(request)
    assert rate is not None
    assert stalled_s(request, rate) == pytest.approx(0, abs=1e-9)
    assert (stalled_s(request, rate * 1.01) or 0) > 0


def test_a_burst_hides_a_wait_from_the_mean_but_not_from_the_reader() -> None:
    smooth, burst = stream_of([(100, 1)] * 8), stream_of([(10, 1)] * 7 + [(730, 1)])
    assert smooth.decode_ns == burst.decode_ns
    assert stall_free_tok_s(smooth) == pytest.approx(10)
    assert stall_free_tok_s(burst) == pytest.approx(10)
    late = stream_of([(730, 1)] + [(10, 1)] * 7)
    assert stall_free_tok_s(late) == pytest.approx(1 / 0.73)


def test_a_run_of_streams() -> None:
    seen = reading([stream_of([(100, 1)] * 4), stream_of([(50, 1)] * 4)], 12.5)
    assert seen is not None
    assert (seen.requests, seen.stalled_requests) == (2, 1)
    assert seen.stall_free_p50 == pytest.approx(15)
    assert seen.stalled_s == pytest.approx((0.4 - 3 / 12.5 - 1 / 12.5) / 2)


def test_what_no_one_counted_is_not_replayed() -> None:
    request = stream_of([(10, 1)])
    vague = dataclasses.replace(
        request.trace, chunks=(*request.trace.chunks, Chunk(at_ns=1, tokens=None, text="x"))
    )
    assert reading([sums_of(vague)]) is None
    assert stall_free_tok_s(stream_of([])) is None
