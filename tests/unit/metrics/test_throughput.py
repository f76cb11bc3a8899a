import dataclasses

import pytest

from specbench.metrics.arms import gather
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.sums import sums_of
from specbench.metrics.throughput import (
    full_batch_forwards,
    output_tok_s,
    outside_share,
    step_split,
)
from specbench.trace import ArmRun, RequestTrace


def batched(size: int) -> ArmRun:
    """Two requests that share four forwards; then one goes on alone for two."""
    long = trace_of([0, 0, 0, 0, 0, 0], depth=0, name="A")
    short = trace_of([0, 0, 0, 0], depth=0, name="B")

    def shared(trace: RequestTrace) -> RequestTrace:
        steps = tuple(
            dataclasses.replace(step, batch=2 if step.batch_step < 4 else 1, other_ns=1_000_000)
            for step in trace.steps
        )
        return dataclasses.replace(trace, steps=steps)

    run = run_of(shared(long), shared(short))
    return dataclasses.replace(run, batch_size=size)


def test_a_forward_is_counted_once_and_only_at_full_batch() -> None:
    (arm,) = gather([batched(2)]).values()
    assert len(full_batch_forwards(arm)) == 4
    split = step_split(arm)
    assert split is not None
    assert (split.forwards, split.verify_ms, split.other_ms) == (4, 10.0, 1.0)
    assert split.step_ms == 11.0


def test_forwards_of_other_blocks_are_others() -> None:
    runs = [batched(2), dataclasses.replace(batched(2), block=1)]
    (arm,) = gather(runs).values()
    assert len(full_batch_forwards(arm)) == 8


def test_no_forward_at_full_batch_gives_nothing() -> None:
    (arm,) = gather([batched(3)]).values()
    assert step_split(arm) is None


def test_untimed_steps_give_no_split() -> None:
    trace = trace_of([1], depth=1, step_ms=0)
    (arm,) = gather([run_of(trace)]).values()
    assert step_split(arm) is None
    assert outside_share(arm.requests) is None


def test_throughput_is_tokens_over_windows() -> None:
    run = dataclasses.replace(
        run_of(trace_of([3, 2, 0, 1], depth=3), trace_of([0, 0], depth=3, name="B")),
        wall_ns=2_000_000_000,
    )
    (arm,) = gather([run, dataclasses.replace(run, block=1)]).values()
    rate = output_tok_s(arm)
    assert rate is not None
    assert rate.value == pytest.approx(14 / 2)


def test_category_needs_batch_one() -> None:
    (arm,) = gather([batched(2)]).values()
    assert output_tok_s(arm, "") is None
    assert step_split(arm, "") is None


def test_category_at_batch_one_takes_its_share_of_the_window() -> None:
    def of(name: str, category: str, accepted: list[int]) -> RequestTrace:
        trace = trace_of(accepted, depth=3, name=name)
        return dataclasses.replace(
            trace, request=dataclasses.replace(trace.request, category=category)
        )

    run = run_of(of("A", "x", [1, 1]), of("B", "y", [0, 0, 0, 0, 0, 0]))
    (arm,) = gather([run]).values()
    fast, slow = output_tok_s(arm, "x"), output_tok_s(arm, "y")
    assert fast is not None
    assert slow is not None
    assert fast.value == pytest.approx(5 / 0.040)
    assert slow.value == pytest.approx(7 / 0.080)


def test_outside_share() -> None:
    trace = trace_of([0, 0], depth=0)
    late = dataclasses.replace(trace.chunks[-1], at_ns=trace.chunks[-1].at_ns + 20_000_000)
    slow = dataclasses.replace(trace, chunks=(*trace.chunks[:-1], late))
    assert outside_share([sums_of(trace)]) == pytest.approx(0.0)
    assert outside_share([sums_of(slow)]) == pytest.approx(0.5)
