import dataclasses

import pytest

from specbench.estimate import Evidence
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.sums import complete_sums, prompt_key, sums_of
from specbench.request import Request
from specbench.trace import Chunk, Finish, RequestTrace, Usage


def test_steps_are_added_up() -> None:
    sums = sums_of(trace_of([3, 2, 0, 1], depth=3, drafted=7))
    assert (sums.verify_steps, sums.accepted, sums.depth, sums.drafted) == (4, 6, 12, 28)
    assert (sums.emitted, sums.completion, sums.deliveries) == (10, 11, 5)
    assert sums.step_ns == sums.decode_ns == 40_000_000
    assert sums.decode_tokens == 10


def test_empty_chunks_are_no_deliveries() -> None:
    trace = trace_of([1], depth=1)
    padded = dataclasses.replace(
        trace,
        chunks=(
            Chunk(at_ns=1, tokens=None),
            *trace.chunks,
            Chunk(at_ns=10**12, tokens=0),
        ),
    )
    assert sums_of(padded).first_ns == trace.chunks[0].at_ns
    assert sums_of(padded).last_ns == trace.chunks[-1].at_ns


@pytest.mark.parametrize("finish", [Finish.ERROR, Finish.CANCELLED])
def test_failed_requests_are_left_out(finish: Finish) -> None:
    good, bad = trace_of([1], depth=1), dataclasses.replace(trace_of([1], depth=1), finish=finish)
    assert len(complete_sums([run_of(good, bad)])) == 1


def test_warmup_is_left_out() -> None:
    warm = dataclasses.replace(trace_of([1], depth=1), warmup=True)
    assert complete_sums([run_of(warm)]) == ()


def test_claimed_steps_without_any_fall_back_to_totals() -> None:
    trace = dataclasses.replace(
        trace_of([1, 1], depth=1), steps=(), usage=Usage(completion_tokens=5, verify_steps=2)
    )
    weaker = dataclasses.replace(trace, evidence=Evidence.TOTALS)
    assert sums_of(trace).evidence is Evidence.TOTALS
    assert sums_of(weaker).evidence is Evidence.TOTALS


def test_one_token_answer_has_no_step_and_keeps_its_evidence() -> None:
    sums = sums_of(trace_of([], depth=3))
    assert (sums.evidence, sums.verify_steps, sums.completion) == (Evidence.STEPS, 0, 1)
    assert sums.decode_ns is None


def test_weaker_claim_is_believed() -> None:
    trace = dataclasses.replace(
        trace_of([1], depth=1),
        steps=(),
        evidence=Evidence.CHUNKS,
        usage=Usage(completion_tokens=3, verify_steps=1, accepted=1),
    )
    assert sums_of(trace).evidence is Evidence.CHUNKS
    assert sums_of(trace).accepted is None


def completion(trace: RequestTrace) -> int | None:
    return sums_of(trace).completion


def test_completion_by_source() -> None:
    trace = trace_of([1, 1], depth=1)
    told = dataclasses.replace(trace, usage=Usage(completion_tokens=9), output_ids=(1, 2))
    assert completion(told) == 9
    assert completion(dataclasses.replace(told, usage=Usage())) == 2
    assert completion(dataclasses.replace(trace, usage=Usage())) == 5
    unknown = dataclasses.replace(
        trace, usage=Usage(), chunks=(*trace.chunks, Chunk(at_ns=99, tokens=None, text="x"))
    )
    assert completion(unknown) is None
    assert sums_of(unknown).decode_tokens is None


def test_first_chunk_without_count_takes_off_one() -> None:
    trace = trace_of([1, 1], depth=1)
    first = dataclasses.replace(trace.chunks[0], tokens=None, text="x")
    sums = sums_of(dataclasses.replace(trace, chunks=(first, *trace.chunks[1:])))
    assert sums.first_tokens is None
    assert sums.decode_tokens == 4


def test_prompt_key_falls_back_to_the_request() -> None:
    request = Request(request_id="q7#2", prompt="x", workload="w", turn=2)
    assert prompt_key(request) == ("w", "q7", 2)


def test_drafts_that_are_totalled_without_steps_keep_their_sums() -> None:
    told = Usage(completion_tokens=11, drafted=12, accepted=6)
    trace = dataclasses.replace(trace_of([3, 2, 0, 1], depth=3), steps=(), usage=told)
    sums = sums_of(dataclasses.replace(trace, evidence=Evidence.TOTALS))
    assert (sums.evidence, sums.drafted, sums.accepted) == (Evidence.CHUNKS, 12, 6)
    assert (sums.verify_steps, sums.histogram) == (None, None)
    silent = dataclasses.replace(trace, usage=Usage(completion_tokens=11))
    missing = sums_of(dataclasses.replace(silent, evidence=Evidence.CHUNKS))
    assert (missing.drafted, missing.accepted) == (None, None)
