import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.estimate import Evidence
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.identities import merged_deliveries, residuals
from specbench.metrics.sums import complete_sums, sums_of
from specbench.trace import Chunk, Usage


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), min_size=1, max_size=5))
def test_healthy_runs_have_no_residual(accepted: list[list[int]]) -> None:
    traces = (trace_of(a, depth=3, name=str(i)) for i, a in enumerate(accepted))
    assert residuals(complete_sums([run_of(*traces)])) == ()


def test_completion_that_steps_did_not_emit_breaks_i1() -> None:
    trace = dataclasses.replace(trace_of([3, 2], depth=3), usage=Usage(completion_tokens=9))
    (found,) = residuals([sums_of(trace)])
    assert (found.name, found.residual, found.where) == ("I1", 1, "A")


def test_trimmed_step_does_not_break_i1() -> None:
    trace = trace_of([3, 2], depth=3)
    cut = dataclasses.replace(trace.steps[1], emitted=1)
    trimmed = dataclasses.replace(
        trace, steps=(trace.steps[0], cut), usage=Usage(completion_tokens=6)
    )
    assert residuals([sums_of(trimmed)]) == ()


@pytest.mark.parametrize(("completion", "broken"), [(11, 0), (9, 0), (12, 1)])
def test_totals_bound_completion(completion: int, broken: int) -> None:
    trace = dataclasses.replace(
        trace_of([3, 2, 0, 1], depth=3),
        steps=(),
        evidence=Evidence.TOTALS,
        usage=Usage(completion_tokens=completion, verify_steps=4, accepted=6, drafted=12),
    )
    assert len(residuals([sums_of(trace)])) == broken


def test_server_totals_against_histogram_is_i2() -> None:
    usage = Usage(completion_tokens=11, verify_steps=5, accepted=6, histogram=(1, 1, 1, 1))
    trace = dataclasses.replace(
        trace_of([3, 2, 0, 1], depth=3), steps=(), evidence=Evidence.HISTOGRAM, usage=usage
    )
    (found,) = residuals([sums_of(trace)])
    assert (found.name, found.residual) == ("I2", 1)


def test_survival_that_does_not_add_up_is_i3() -> None:
    sums = dataclasses.replace(sums_of(trace_of([3, 2], depth=3)), accepted=4)
    assert "I3" in {found.name for found in residuals([sums])}


def test_conditional_that_does_not_multiply_is_i4() -> None:
    sums = dataclasses.replace(sums_of(trace_of([3, 2, 1], depth=3)), at_risk=(3, 2, 2))
    assert "I4" in {found.name for found in residuals([sums])}


def test_varying_depth_is_no_reason_for_i4() -> None:
    traces = (trace_of([1], depth=1, name="A"), trace_of([3, 0], depth=3, name="B"))
    assert residuals(complete_sums([run_of(*traces)])) == ()


def test_one_step_a_delivery() -> None:
    assert merged_deliveries([sums_of(trace_of([3, 2, 0, 1], depth=3))]) == pytest.approx(1.0)


def test_merged_deliveries_are_seen() -> None:
    trace = trace_of([3, 2, 0, 1], depth=3)
    first, a, b, c, d = trace.chunks
    merged = (
        first,
        Chunk(at_ns=b.at_ns, tokens=(a.tokens or 0) + (b.tokens or 0)),
        Chunk(at_ns=d.at_ns, tokens=(c.tokens or 0) + (d.tokens or 0)),
    )
    sums = sums_of(dataclasses.replace(trace, chunks=merged))
    assert merged_deliveries([sums]) == pytest.approx(2.0)
