import dataclasses

import pytest

from specbench.metrics.example import trace_of
from specbench.metrics.latency import (
    chunk_gaps_ns,
    end_to_end_ns,
    latency,
    schedule_lag_ns,
    tpot_is_exact,
    tpot_ns,
    ttft_ns,
)
from specbench.metrics.sums import sums_of

MS = 1_000_000


def test_four_figures_are_four() -> None:
    sums = sums_of(trace_of([3, 2, 0, 1], depth=3, step_ms=10))
    assert ttft_ns(sums) == 20 * MS
    assert end_to_end_ns(sums) == 60 * MS
    assert chunk_gaps_ns(sums).tolist() == [10 * MS] * 4
    assert tpot_ns(sums) == 4 * MS


def test_tpot_takes_off_the_whole_first_chunk() -> None:
    trace = trace_of([3, 2, 0, 1], depth=3, step_ms=10)
    first = dataclasses.replace(trace.chunks[0], tokens=5)
    usage = dataclasses.replace(trace.usage, completion_tokens=15)
    bigger = dataclasses.replace(trace, chunks=(first, *trace.chunks[1:]), usage=usage)
    assert tpot_ns(sums_of(bigger)) == 4 * MS


def test_tpot_of_one_delivery_is_missing() -> None:
    sums = sums_of(trace_of([], depth=3))
    assert tpot_ns(sums) is None
    assert chunk_gaps_ns(sums).tolist() == []


def test_lag_is_not_in_ttft() -> None:
    late = dataclasses.replace(trace_of([1], depth=1), due_ns=-7 * MS)
    assert schedule_lag_ns(late) == 7 * MS
    assert ttft_ns(sums_of(late)) == 20 * MS


def test_no_delivery_gives_nothing() -> None:
    empty = sums_of(dataclasses.replace(trace_of([1], depth=1), chunks=()))
    seen = latency([empty])
    assert (seen.ttft_ms_p50, seen.tpot_ms_p50, seen.chunk_gap_ms_p99) == (None, None, None)


def test_percentiles_in_ms() -> None:
    seen = latency([sums_of(trace_of([0, 0], depth=0, step_ms=s)) for s in (10, 20, 40)])
    assert seen.tpot_ms_p50 == pytest.approx(20)
    assert seen.chunk_gap_ms_p99 == pytest.approx(40)
    assert seen.ttft_ms_p50 == pytest.approx(20)


def test_unknown_first_chunk_is_told() -> None:
    trace = trace_of([1], depth=1)
    first = dataclasses.replace(trace.chunks[0], tokens=None, text="x")
    vague = dataclasses.replace(trace, chunks=(first, *trace.chunks[1:]))
    assert tpot_is_exact([sums_of(trace)])
    assert not tpot_is_exact([sums_of(trace), sums_of(vague)])
    assert latency([sums_of(trace)]).tpot_exact
    assert not latency([sums_of(trace), sums_of(vague)]).tpot_exact


def test_one_delivery_divides_by_nothing() -> None:
    trace = trace_of([], depth=1)
    first = dataclasses.replace(trace.chunks[0], tokens=None, text="x")
    assert tpot_is_exact([sums_of(dataclasses.replace(trace, chunks=(first,)))])
