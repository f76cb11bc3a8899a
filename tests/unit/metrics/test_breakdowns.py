import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.estimate import Evidence
from specbench.metrics.acceptance import accept_length, conditional, histogram, survival
from specbench.metrics.breakdowns import Breakdown, breakdowns
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.sums import RequestSums, complete_sums
from specbench.trace import RequestTrace, Usage

BY_LENGTH = ("request", "category", "context", "output", "cycle", "turn")


def placed(trace: RequestTrace, *, prompt: int, turn: int = 0, category: str = "") -> RequestTrace:
    """Steps with the lengths that a real engine gives them."""
    length, steps = prompt + 1, []
    for step in trace.steps:
        steps.append(dataclasses.replace(step, committed=length))
        length += step.emitted
    request = dataclasses.replace(trace.request, turn=turn, category=category)
    return dataclasses.replace(trace, steps=tuple(steps), request=request)


def sums(*traces: RequestTrace) -> tuple[RequestSums, ...]:
    return complete_sums([run_of(*traces)])


def of(rows: tuple[Breakdown, ...], by: str) -> dict[str, Breakdown]:
    return {row.key: row for row in rows if row.by == by}


accepted_lists = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=40), min_size=1, max_size=20
)


@given(accepted_lists)
def test_every_cut_holds_the_same_steps(lists: list[list[int]]) -> None:
    found = sums(
        *(
            placed(
                trace_of(a, depth=4, name=f"p{i}"),
                prompt=7 * i,
                turn=i % 3,
                category="ab"[i % 2],
            )
            for i, a in enumerate(lists)
        )
    )
    rows = breakdowns(found)
    steps, accepted = sum(map(len, lists)), sum(map(sum, lists))
    for by in BY_LENGTH:
        cut = [row for row in rows if row.by == by]
        assert (sum(r.steps for r in cut), sum(r.hits for r in cut)) == (steps, accepted), by
    assert [r.hits for r in rows if r.by == "histogram"] == list(histogram(found) or ())
    for by, shares in (("unconditional", survival(found)), ("conditional", conditional(found))):
        expected = [share for share in shares or () if share is not None]
        assert [r.value for r in rows if r.by == by] == pytest.approx(expected)
    for row in rows:
        low, high = row.low, row.high
        if low is not None and high is not None:
            assert low <= row.value <= high
            assert row.unit == "tokens/step" or high <= 1


def test_keys_follow_the_place_of_a_step() -> None:
    trace = placed(trace_of([3, 0, 2, 1, 0, 0, 3], depth=3), prompt=126)
    rows = breakdowns(sums(trace))
    # lengths when the steps began: 127 131 132 135 137 138 139; output tokens: 1 5 6 9 11 12 13
    assert {k: (r.hits, r.steps) for k, r in of(rows, "context").items()} == {
        "0-127": (3, 1),
        "128+": (6, 6),
    }
    assert list(of(rows, "output")) == ["0+"]
    assert {k: r.hits for k, r in of(rows, "cycle").items()} == {
        "1": 3,
        "2": 0,
        "3": 2,
        "4": 1,
        "5+": 3,
    }


def test_later_ranges_double() -> None:
    trace = placed(trace_of([1] * 40, depth=1), prompt=0)
    rows = breakdowns(sums(trace))
    assert list(of(rows, "cycle")) == ["1", "2", "3", "4", "5-8", "9-16", "17-32", "33+"]
    assert list(of(rows, "output")) == ["0-15", "16-31", "32-63", "64+"]


def test_turns_are_counted_from_one() -> None:
    rows = breakdowns(
        sums(
            placed(trace_of([3, 3], depth=3), prompt=5),
            placed(trace_of([0, 1], depth=3), prompt=50, turn=1),
        )
    )
    assert {key: row.value for key, row in of(rows, "turn").items()} == {"1": 4.0, "2": 1.5}


def test_intervals_need_twelve_conversations_and_hold_the_pooled_figure() -> None:
    def rows(count: int) -> dict[str, Breakdown]:
        traces = (trace_of([3, i % 4, 0], depth=3, name=f"p{i}") for i in range(count))
        return of(breakdowns(sums(*traces)), "category")

    (few,), (enough,) = rows(11).values(), rows(12).values()
    assert few.low is None
    assert enough.low is not None
    pooled = accept_length(
        sums(*(trace_of([3, i % 4, 0], depth=3, name=f"p{i}") for i in range(12)))
    )
    assert pooled is not None
    assert (enough.value, enough.low, enough.high) == pytest.approx(
        (pooled.value, pooled.low, pooled.high)
    )


def test_a_histogram_gives_no_places_and_totals_give_nothing() -> None:
    trace = dataclasses.replace(trace_of([3, 0], depth=3), steps=())
    usage = Usage(completion_tokens=6, verify_steps=2, accepted=3, histogram=(1, 0, 0, 1))
    known = dataclasses.replace(trace, evidence=Evidence.HISTOGRAM, usage=usage)
    kinds = {row.by for row in breakdowns(sums(known))}
    assert kinds == {"unconditional", "histogram", "request", "category", "turn"}
    weak = dataclasses.replace(
        known, evidence=Evidence.TOTALS, usage=dataclasses.replace(usage, histogram=None)
    )
    assert breakdowns(sums(weak)) == ()
