import dataclasses

import pytest

from specbench.estimate import Evidence
from specbench.metrics.arms import Arm, gather
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.speedup import Decomposition, decode_speedup, decompose, paired
from specbench.metrics.sums import RequestSums, complete_sums
from specbench.metrics.throughput import step_split
from specbench.trace import ArmRun


def plain(count: int, step_ms: float = 10.0, block: int = 0) -> ArmRun:
    traces = (
        trace_of([0] * 12, depth=0, name=f"p{i}", step_ms=step_ms + 0.001 * i) for i in range(count)
    )
    return run_of(*traces, point_id="base", block=block)


def fast(count: int, step_ms: float = 20.0, block: int = 0) -> ArmRun:
    traces = (
        trace_of([3, 3, 3], depth=3, name=f"p{i}", step_ms=step_ms + 0.05 * (i % 3))
        for i in range(count)
    )
    return run_of(*traces, block=block)


def sums(*runs: ArmRun) -> tuple[RequestSums, ...]:
    return complete_sums(runs)


def test_speedup_with_interval_and_pairs_only() -> None:
    speedup = decode_speedup(sums(plain(20)), sums(fast(14)))
    assert speedup is not None
    assert speedup.n == 14
    assert speedup.value == pytest.approx(2.0, rel=0.01)
    assert speedup.low is not None
    assert speedup.high is not None
    assert speedup.low < speedup.value < speedup.high


def test_too_few_prompts_give_no_interval() -> None:
    speedup = decode_speedup(sums(plain(11)), sums(fast(11)))
    assert speedup is not None
    assert (speedup.low, speedup.high) == (None, None)


def test_nothing_paired_is_none() -> None:
    other = run_of(trace_of([1], depth=1, name="elsewhere"))
    assert decode_speedup(sums(plain(3)), sums(other)) is None


def test_unequal_tokens_are_normalised() -> None:
    # The arm answers with half the tokens at the same time per token: no speedup.
    short = run_of(trace_of([1] * 3, depth=1, name="p0", step_ms=20.0))
    speedup = decode_speedup(sums(plain(1)), sums(short))
    assert speedup is not None
    assert speedup.value == pytest.approx(1.0)


def test_long_prompts_weigh_more() -> None:
    base = run_of(
        trace_of([0] * 90, depth=0, name="long"), trace_of([0] * 10, depth=0, name="short")
    )
    arm = run_of(
        trace_of([0] * 90, depth=1, name="long", step_ms=5.0),
        trace_of([0] * 10, depth=1, name="short", step_ms=20.0),
    )
    speedup = decode_speedup(sums(base), sums(arm))
    assert speedup is not None
    assert speedup.value == pytest.approx(1000 / 650)


def test_repeats_are_paired_in_block_order() -> None:
    pairs = paired(
        sums(plain(2), plain(2, block=1)), sums(fast(2, block=1), fast(2), fast(2, block=2))
    )
    assert [(a.block, b.block) for a, b in pairs] == [(0, 0), (1, 1), (0, 0), (1, 1)]


def test_five_repeats_are_runs() -> None:
    base = sums(*(plain(3, 10 + 0.1 * b, block=b) for b in range(5)))
    arm = sums(*(fast(3, 20 - 0.2 * b, block=b) for b in range(5)))
    speedup = decode_speedup(base, arm)
    assert speedup is not None
    assert speedup.n == 5
    assert speedup.low is not None


def blocks_of(slow: dict[int, float], name: str) -> tuple[RequestSums, ...]:
    """Five blocks of four prompts, with a little noise of each, some blocks slower as a whole."""
    runs = []
    for block in range(5):
        traces = [
            trace_of(
                [0] * 10,
                depth=0,
                name=f"p{block}{i}",
                step_ms=10 * slow.get(block, 1.0) * (1 + 0.001 * ((3 * block + i) % 4)),
            )
            for i in range(4)
        ]
        runs.append(run_of(*traces, point_id=name, block=block))
    return sums(*runs)


def test_seconds_that_slow_a_whole_block_of_one_arm_widen_the_interval() -> None:
    still = decode_speedup(blocks_of({}, "base"), blocks_of({}, "again"))
    slowed = decode_speedup(blocks_of({}, "base"), blocks_of({2: 1.3, 4: 1.1}, "again"))
    assert still is not None
    assert slowed is not None
    assert slowed.n == still.n == 20  # prompts, whatever was resampled
    assert not slowed.excludes(1.0)
    merged = [dataclasses.replace(r, block=0) for r in blocks_of({}, "base")]
    apart = [dataclasses.replace(r, block=0) for r in blocks_of({2: 1.3, 4: 1.1}, "again")]
    alone = decode_speedup(merged, apart)  # as if requests were independent
    assert alone is not None
    assert alone.excludes(1.0)
    assert (still.low, still.high) == pytest.approx((1.0, 1.0))


def test_decomposition_predicts_the_speedup() -> None:
    baseline, arm = arms(plain(20), fast(20))
    parts = decomposed(baseline, arm)
    speedup = decode_speedup(baseline.requests, arm.requests)
    assert parts is not None
    assert speedup is not None
    assert parts.emitted_length == 4.0
    assert parts.break_even_accept_length == pytest.approx(2.0, rel=0.01)
    assert parts.product == pytest.approx(speedup.value)
    assert parts.spec_outside == pytest.approx(0.0)


def test_decomposition_needs_step_times() -> None:
    untimed = trace_of([3], depth=3, name="p0")
    steps = tuple(dataclasses.replace(step, verify_ns=0) for step in untimed.steps)
    baseline, arm = arms(plain(1), run_of(dataclasses.replace(untimed, steps=steps)))
    assert decomposed(baseline, arm) is None


def decomposed(baseline: Arm, arm: Arm) -> Decomposition | None:
    return decompose(baseline.requests, step_split(baseline), arm.requests, step_split(arm))


def arms(base: ArmRun, spec: ArmRun) -> tuple[Arm, Arm]:
    first, second = gather([base, spec]).values()
    return first, second


def vague(run: ArmRun) -> ArmRun:
    """As from a server that does not say what a chunk holds."""
    traces = tuple(
        dataclasses.replace(
            trace, chunks=tuple(dataclasses.replace(c, tokens=None, text="x") for c in trace.chunks)
        )
        for trace in run.requests
    )
    return dataclasses.replace(run, requests=traces)


@pytest.mark.parametrize("side", [0, 1])
def test_times_that_rest_on_n_minus_1_have_the_evidence_of_chunks(side: int) -> None:
    exact = plain(3), fast(3)
    seen = decode_speedup(*(sums(run) for run in exact))
    mixed = [sums(vague(run) if i == side else run) for i, run in enumerate(exact)]
    weaker = decode_speedup(*mixed)
    assert seen is not None
    assert weaker is not None
    assert (seen.evidence, weaker.evidence) == (Evidence.STEPS, Evidence.CHUNKS)
    assert {request.evidence for request in mixed[side]} == {Evidence.STEPS}  # of acceptance
