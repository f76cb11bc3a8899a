import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.estimate import Evidence
from specbench.metrics.account import Cause, token_account
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.sums import complete_sums, sums_of
from specbench.trace import RequestTrace, Usage


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(0, 5)),
        min_size=1,
        max_size=6,
    )
)
def test_every_token_is_accounted_for(drawn: list[tuple[list[int], int]]) -> None:
    traces, cuts = [], 0
    for index, (accepted, asked) in enumerate(drawn):
        trace = trace_of(accepted, depth=5, name=str(index))
        cut = min(asked, accepted[-1])
        last = dataclasses.replace(trace.steps[-1], emitted=accepted[-1] + 1 - cut)
        whole = trace.usage.completion_tokens or 0
        traces.append(
            dataclasses.replace(
                trace,
                steps=(*trace.steps[:-1], last),
                usage=Usage(completion_tokens=whole - cut),
            )
        )
        cuts += cut
    account = token_account(complete_sums([run_of(*traces)]))
    assert account is not None
    assert (account.trimmed, account.residual) == (cuts, 0)
    assert account.causes == ((Cause.NONE, len(drawn)),)
    assert account.completion == (
        account.prefill + account.accepted + account.bonus - account.trimmed
    )


def told(completion: int, histogram: tuple[int, ...]) -> RequestTrace:
    accepted = sum(j * count for j, count in enumerate(histogram))
    usage = Usage(
        completion_tokens=completion,
        verify_steps=sum(histogram),
        accepted=accepted,
        histogram=histogram,
    )
    trace = trace_of([0], depth=3)
    return dataclasses.replace(trace, steps=(), evidence=Evidence.HISTOGRAM, usage=usage)


@pytest.mark.parametrize(
    ("completion", "histogram", "cause", "residual"),
    [
        (11, (1, 1, 1, 1), Cause.NONE, 0),
        (9, (1, 1, 1, 1), Cause.TRIMMED, 0),
        (4, (4,), Cause.PREFILL, -1),
        (5, (1, 1, 1, 1), Cause.FINISHED_ROWS, -6),
        (14, (1, 1, 1, 1), Cause.UNDRAFTED, 3),
    ],
)
def test_what_is_left_over_has_a_name(
    completion: int, histogram: tuple[int, ...], cause: Cause, residual: int
) -> None:
    account = token_account([sums_of(told(completion, histogram))])
    assert account is not None
    assert (account.causes, account.residual) == (((cause, 1),), residual)


def test_steps_that_emitted_other_tokens_are_miscounted() -> None:
    trace = dataclasses.replace(trace_of([3, 2], depth=3), usage=Usage(completion_tokens=12))
    account = token_account([sums_of(trace)])
    assert account is not None
    assert (account.residual, account.causes) == (4, ((Cause.MISCOUNTED, 1),))


def test_unknown_counts_give_no_account() -> None:
    trace = dataclasses.replace(trace_of([1], depth=1), steps=(), evidence=Evidence.CHUNKS)
    assert token_account([sums_of(trace)]) is None
    assert token_account([]) is None
