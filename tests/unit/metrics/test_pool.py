import dataclasses

import numpy as np
import pytest

from specbench.metrics.example import run_of, trace_of
from specbench.metrics.latency import chunk_gaps_ns, tpot_ns
from specbench.metrics.pool import Pool, numbered
from specbench.metrics.sums import RequestSums, complete_sums, sums_of
from specbench.trace import Evidence, Usage


def pool_of(*accepted: list[int], categories: str = "") -> Pool:
    traces = []
    for i, each in enumerate(accepted):
        trace = trace_of(each, depth=3, name=f"p{i}")
        category = categories[i : i + 1]
        request = dataclasses.replace(trace.request, category=category)
        traces.append(dataclasses.replace(trace, request=request))
    return Pool(complete_sums([run_of(*traces)]))


def without_accepted(pool: Pool) -> Pool:
    last = dataclasses.replace(pool[-1], accepted=None, evidence=Evidence.CHUNKS)
    return Pool([*pool[:-1], last])


def test_a_column_is_asked_for_once() -> None:
    asked: list[RequestSums] = []

    def count(request: RequestSums) -> int:
        asked.append(request)
        return request.verify_steps or 0

    pool = pool_of([1, 2], [0], [3, 3, 3], categories="aba")
    assert pool.column(count).tolist() == [2.0, 1.0, 3.0]
    assert pool.of_category("a").column(count).tolist() == [2.0, 3.0]
    assert len(asked) == 3  # a category's column is cut from the whole one
    assert Pool.of(pool) is pool


def test_columns_of_a_category_are_its_own() -> None:
    pool = pool_of([1, 2], [0], [3, 3, 3], categories="aba")
    assert [name for name, _ in pool.categories.items()] == ["a", "b"]
    for part in pool.categories.values():
        fresh = Pool(list(part))
        for field in ("accepted", "decode_ns", tpot_ns):
            assert np.array_equal(part.column(field), fresh.column(field))
        assert np.array_equal(part.histograms, fresh.histograms)
        assert np.array_equal(part.chunk_gaps_ns, fresh.chunk_gaps_ns)


def test_the_only_category_is_the_whole_pool() -> None:
    pool = pool_of([1], [2], categories="aa")
    assert pool.of_category("a") is pool
    assert pool.of_category(None) is pool
    assert len(pool.of_category("elsewhere")) == 0


def test_what_is_not_known_is_never_zero() -> None:
    pool = without_accepted(pool_of([1, 2], [3]))
    assert pool.weakest is Evidence.CHUNKS
    assert not pool.knows("accepted")
    assert pool.total("accepted") is None
    assert np.isnan(pool.column("accepted")[-1])
    assert pool.counts("accepted").tolist() == [3.0, 0.0]
    assert pool.total("verify_steps") == 3
    assert Pool([]).total("verify_steps") is None
    assert Pool([]).weakest is Evidence.NONE


def test_repeats_and_turns_are_one_unit() -> None:
    first, second = pool_of([1, 2], [3])
    turn = dataclasses.replace(first, prompt=(*first.conversation, 1))
    rows = Pool([first, second, turn])
    found = rows.add_up(rows.column("accepted"), rows.column("verify_steps"))
    assert found.tolist() == [[6.0, 4.0], [3.0, 1.0]]
    assert Pool([]).add_up(np.zeros(0)).shape == (0, 1)


def test_histograms_of_different_depth_are_padded() -> None:
    shallow = sums_of(trace_of([1, 0], depth=1, name="a"))
    deep = sums_of(trace_of([3, 0, 2], depth=3, name="b"))
    pool = Pool([shallow, deep])
    assert pool.histograms.tolist() == [[1, 1, 0, 0], [1, 0, 1, 1]]
    assert pool.at_risk.tolist() == [[2, 0, 0], [3, 2, 2]]


def test_gaps_never_span_two_requests() -> None:
    silent = dataclasses.replace(trace_of([1], depth=1, name="silent"), chunks=(), usage=Usage())
    requests = [
        sums_of(trace_of([3, 2], depth=3)),
        sums_of(silent),
        sums_of(trace_of([0], depth=3)),
    ]
    each = np.concatenate([chunk_gaps_ns(request) for request in requests])
    assert Pool(requests).chunk_gaps_ns.tolist() == each.tolist()
    assert Pool([]).chunk_gaps_ns.tolist() == []


def test_sums_made_together_are_those_made_alone() -> None:
    traces = [
        trace_of([3, 2, 0, 1], depth=3, name="a"),
        trace_of([1], depth=1, name="b"),
        dataclasses.replace(
            trace_of([2, 2], depth=3, name="c"),
            steps=(),
            evidence=Evidence.TOTALS,
            usage=Usage(completion_tokens=7, verify_steps=2, drafted=6, accepted=4),
        ),
        dataclasses.replace(trace_of([], depth=3, name="d"), steps=()),
        trace_of([0, 0, 0], depth=5, name="e"),
    ]
    together = complete_sums([run_of(*traces)])
    assert [one.evidence.name for one in together] == ["STEPS", "STEPS", "TOTALS", "STEPS", "STEPS"]
    assert together == tuple(sums_of(trace) for trace in traces)


@pytest.mark.parametrize("keys", [["b", "a", "b"], [], [(1, 2), (1, 2)]])
def test_numbered_keeps_the_order_of_appearance(keys: list[object]) -> None:
    owners, count = numbered(keys)
    assert count == len(dict.fromkeys(keys))
    assert [list(dict.fromkeys(keys))[owner] for owner in owners.tolist()] == keys
