"""Figures from columns against the same figures counted step by step, on random traces."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.columns import Chunks, Steps
from specbench.metrics.acceptance import conditional, histogram, survival
from specbench.metrics.arms import gather
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.latency import chunk_gaps_ns
from specbench.metrics.step_columns import step_columns
from specbench.metrics.sums import sums_of
from specbench.metrics.throughput import step_split
from specbench.trace import ArmRun, Chunk, RequestTrace, StepTrace


@st.composite
def random_steps(draw: st.DrawFn) -> StepTrace:
    depth = draw(st.integers(0, 4))
    accepted = draw(st.integers(0, depth))
    batch = draw(st.integers(1, 3))
    number = draw(st.integers(0, 9))
    return StepTrace(
        batch_step=number,
        batch=batch,
        committed=draw(st.integers(1, 300)),
        drafted=depth * draw(st.integers(1, 3)),
        depth=depth,
        accepted=accepted,
        emitted=draw(st.integers(0, accepted + 1)),
        draft_ns=1000 * number,  # equal in all steps of one forward
        verify_ns=7 * number * batch,
        other_ns=draw(st.just(number % 3)),
    )


@st.composite
def random_traces(draw: st.DrawFn) -> RequestTrace:
    made = trace_of([0], depth=0, name=draw(st.sampled_from("ABC")))
    steps = draw(st.lists(random_steps(), min_size=1, max_size=8))
    chunks = draw(
        st.lists(
            st.builds(
                Chunk,
                at_ns=st.integers(0, 10**9),
                tokens=st.none() | st.integers(0, 5),
                text=st.sampled_from(["", "x"]),
            ),
            max_size=6,
        )
    )
    return dataclasses.replace(made, steps=tuple(steps), chunks=tuple(chunks))


def as_columns(trace: RequestTrace) -> RequestTrace:
    return dataclasses.replace(trace, steps=Steps.of(trace.steps), chunks=Chunks.of(trace.chunks))


@given(random_traces())
def test_sums_are_those_of_the_steps(trace: RequestTrace) -> None:
    seen, steps = sums_of(as_columns(trace)), trace.steps
    arrived = [c for c in trace.chunks if c.text or c.tokens]
    deepest = max(step.depth for step in steps)
    assert seen.verify_steps == len(steps)
    for name in ("drafted", "depth", "accepted", "emitted"):
        assert getattr(seen, name) == sum(getattr(step, name) for step in steps)
    assert seen.histogram == tuple(
        sum(step.accepted == j for step in steps) for j in range(deepest + 1)
    )
    assert seen.at_risk == tuple(
        sum(step.accepted >= i - 1 and step.depth >= i for step in steps)
        for i in range(1, deepest + 1)
    )
    assert (seen.step_ns or 0) == sum(step.wall_ns for step in steps)
    assert seen.deliveries == len(arrived)
    assert seen.first_tokens == (arrived[0].tokens if arrived else None)
    times = [c.at_ns for c in arrived]
    assert chunk_gaps_ns(seen).tolist() == [b - a for a, b in itertools.pairwise(times)]


@given(st.lists(random_traces(), min_size=1, max_size=5))
def test_pooled_acceptance_is_that_of_the_steps(traces: list[RequestTrace]) -> None:
    seen = [sums_of(as_columns(trace)) for trace in traces]
    steps = [step for trace in traces for step in trace.steps]
    deepest = max(step.depth for step in steps)
    assert histogram(seen) == tuple(
        sum(step.accepted == j for step in steps) for j in range(deepest + 1)
    )
    levels = range(1, deepest + 1)
    reached = [sum(step.accepted >= i for step in steps) for i in levels]
    risk = [sum(step.accepted >= i - 1 and step.depth >= i for step in steps) for i in levels]
    assert survival(seen) == pytest.approx([hits / len(steps) for hits in reached])
    assert conditional(seen) == tuple(
        hits / of if of else None for hits, of in zip(reached, risk, strict=True)
    )
    columns = step_columns(seen)
    cycles = [i + 1 for trace in traces for i in range(len(trace.steps))]
    outputs = [s.committed - t.steps[0].committed + 1 for t in traces for s in t.steps]
    assert columns.cycle.tolist() == cycles
    assert columns.output.tolist() == outputs


@settings(max_examples=60)
@given(
    st.lists(st.lists(random_traces(), min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_each_forward_is_counted_once(blocks: list[list[RequestTrace]], size: int) -> None:
    runs: list[ArmRun] = [
        dataclasses.replace(run_of(*map(as_columns, traces), block=i), batch_size=size)
        for i, traces in enumerate(blocks)
    ]
    (arm,) = gather(runs).values()
    forwards: dict[tuple[int, int, int], StepTrace] = {}
    for index, request in enumerate(arm.requests):
        for step in request.trace.steps:
            if step.wall_ns:
                key = (request.block, step.batch_step, index if size == 1 else 0)
                forwards[key] = step
    full = [step for step in forwards.values() if step.batch == size]
    split = step_split(arm)
    assert len(arm.forwards) == len(forwards)
    if not full:
        assert split is None
        return
    assert split is not None
    assert split.forwards == len(full)
    parts: dict[str, float] = defaultdict(float)
    for step in full:
        for name in ("draft", "verify", "other"):
            parts[name] += getattr(step, f"{name}_ns") / len(full) / 1e6
    assert (split.draft_ms, split.verify_ms, split.other_ms) == pytest.approx(
        (parts["draft"], parts["verify"], parts["other"])
    )
