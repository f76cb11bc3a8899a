"""What one arm counts, against the same facts added up by hand."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from specbench.collectors import catalogue as c
from specbench.collectors.arm import ArmRecord
from specbench.collectors.points import Cell
from specbench.config import SpecConfig
from specbench.request import Request, SamplingParams
from specbench.trace import Chunk, Evidence, Finish, RequestTrace, StepTrace, Usage

MS = 1_000_000
ASKED = Request(request_id="r", prompt="p", sampling=SamplingParams(max_tokens=8))


def step(number: int, accepted: int, *, batch: int = 1, depth: int = 3, ms: int = 4) -> StepTrace:
    return StepTrace(
        batch_step=number,
        batch=batch,
        committed=5,
        drafted=depth,
        depth=depth,
        accepted=accepted,
        emitted=accepted + 1,
        draft_ns=ms * MS // 4,
        extend_ns=ms * MS // 4,
        verify_ns=ms * MS // 2,
    )


def trace(
    *steps: StepTrace, finish: Finish = Finish.LENGTH, usage: Usage | None = None, **more: object
) -> RequestTrace:
    """Sent at 0, the first token after 10 ms, then a delivery per step, 4 ms apart."""
    times = [10 * MS + i * 4 * MS for i in range(len(steps) + 1)]
    counts = [1, *(one.emitted for one in steps)]
    seen = RequestTrace(
        request=ASKED,
        due_ns=0,
        sent_ns=0,
        end_ns=times[-1],
        chunks=tuple(
            Chunk(at_ns=at, tokens=n, text="x") for at, n in zip(times, counts, strict=True)
        ),
        steps=steps,
        finish=finish,
        evidence=Evidence.STEPS,
        usage=usage or Usage(prompt_tokens=5, completion_tokens=sum(counts)),
    )
    return replace(seen, **more)  # type: ignore[arg-type]


def arm(spec: SpecConfig | None = None) -> ArmRecord:
    cell = Cell(spec=spec or SpecConfig.chain(3), batch_size=2, temperature=0.7, workload="w")
    return ArmRecord(cell, "k3.bs2")


def play(record: ArmRecord, seen: RequestTrace) -> None:
    """What ``run_load`` shows of a measured request."""
    for chunk in seen.chunks:
        record.event(seen.request, chunk)
    for one in seen.steps:
        record.event(seen.request, one)
    record.trace(seen)


def values(record: ArmRecord, *by: str) -> dict[tuple[str, ...], float]:
    """Samples by name and the labels ``by``; arm and point must be right in each."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(b"".join(record.lines().values()).decode()):
        for sample in family.samples:
            assert sample.labels["point"] == "k3.bs2"
            found[sample.name, *(sample.labels.get(name, "") for name in by)] = sample.value
    return found


def test_steps_are_counted_by_position() -> None:
    record = arm()
    play(record, trace(step(0, 3), step(1, 0), step(2, 2), step(3, 0, depth=1)))
    found = values(record, "position")

    assert found["specbench_verify_steps_total", ""] == 4
    assert found["specbench_drafted_tokens_total", ""] == 10
    assert found["specbench_emitted_tokens_total", ""] == 9
    assert found["specbench_output_tokens_total", ""] == 10
    positions = ("1", "2", "3")
    assert [found["specbench_drafted_positions_total", p] for p in positions] == [4, 3, 3]
    assert [found["specbench_accepted_tokens_total", p] for p in positions] == [2, 2, 1]
    assert ("specbench_accepted_tokens_total", "unknown") not in found


def test_accepted_drafts_of_a_step_are_a_histogram() -> None:
    record = arm()
    play(record, trace(step(0, 3), step(1, 0), step(2, 2)))
    found = values(record, "le")
    name = "specbench_accepted_per_step_bucket"
    assert [found[name, le] for le in ("0.0", "1.0", "2.0", "3.0", "+Inf")] == [1, 1, 2, 3, 3]
    assert found["specbench_accepted_per_step_sum", ""] == 5


def test_a_forward_is_timed_once_however_many_requests_took_part() -> None:
    record = arm()
    first = trace(step(0, 1, batch=2), step(1, 1, batch=2), step(2, 1))
    second = trace(step(0, 2, batch=2), step(1, 0, batch=2))
    for seen in (first, second):
        play(record, seen)
    found = values(record, "part")

    assert found["specbench_verify_steps_total", ""] == 5
    assert found["specbench_step_seconds_count", ""] == 3
    assert found["specbench_step_seconds_sum", ""] == 0.012
    assert found["specbench_step_part_seconds_sum", "verify"] == 0.006
    assert found["specbench_step_part_seconds_count", "other"] == 3


def test_a_new_block_may_count_its_forwards_from_0_again() -> None:
    record = arm()
    for _ in range(2):
        record.begin()
        play(record, trace(step(0, 1, batch=2)))
    assert values(record)["specbench_step_seconds_count",] == 2


def test_old_forwards_are_forgotten_but_not_at_once() -> None:
    record = arm()
    for number in range(20_000):
        for _ in range(2):
            record.step(step(number, 0, batch=2))
        if number >= 100:
            record.step(step(number - 100, 0, batch=3))  # a straggler
    assert values(record)["specbench_step_seconds_count",] == 20_000
    assert len(record._recent) + len(record._older) <= 2 * 4096


def test_a_step_without_times_has_none() -> None:
    record = arm()
    record.step(step(0, 1, ms=0))
    found = values(record)
    assert found["specbench_verify_steps_total",] == 1
    assert found["specbench_step_seconds_count",] == 0


def test_latencies_are_those_of_the_metrics() -> None:
    record = arm()
    play(record, trace(step(0, 1), step(1, 0), step(2, 0)))
    found = values(record)
    assert found["specbench_ttft_seconds_sum",] == 0.01
    assert found["specbench_tpot_seconds_sum",] == 0.003  # 12 ms for 4 tokens
    assert found["specbench_chunk_gap_seconds_count",] == 3
    assert found["specbench_chunk_gap_seconds_sum",] == 0.012


def test_warm_up_is_not_counted() -> None:
    record = arm()
    record.trace(trace(step(0, 1), warmup=True))
    assert not any(v for (name, *_), v in values(record).items() if not name.endswith("_info"))


def test_every_outcome_is_there_from_the_start_and_failures_have_no_latency() -> None:
    record = arm()
    before = values(record, "outcome")
    play(record, trace(step(0, 1), finish=Finish.ERROR, error="broken"))
    found = values(record, "outcome")

    outcomes = ("stop", "length", "error", "cancelled")
    assert [before["specbench_requests_total", o] for o in outcomes] == [0, 0, 0, 0]
    assert [found["specbench_requests_total", o] for o in outcomes] == [0, 0, 1, 0]
    assert found["specbench_verify_steps_total", ""] == 1
    assert found["specbench_ttft_seconds_count", ""] == 0


def test_tokens_that_only_the_end_tells_are_counted_then() -> None:
    record = arm()
    silent = tuple(Chunk(at_ns=at * MS, tokens=None, text="x") for at in (10, 14))
    play(record, trace(chunks=silent, usage=Usage(completion_tokens=7, prompt_tokens=3)))
    found = values(record)
    assert found["specbench_output_tokens_total",] == 7
    assert found["specbench_prompt_tokens_total",] == 3


def test_a_server_that_gives_a_histogram_is_counted_by_position() -> None:
    record = arm()
    usage = Usage(completion_tokens=9, drafted=12, histogram=(1, 0, 1, 2))
    play(record, trace(evidence=Evidence.HISTOGRAM, usage=usage))
    found = values(record, "position")
    assert found["specbench_verify_steps_total", ""] == 4
    assert found["specbench_drafted_tokens_total", ""] == 12
    assert [found["specbench_accepted_tokens_total", p] for p in "123"] == [3, 3, 2]
    assert ("specbench_drafted_positions_total", "1") not in found


def test_a_server_that_gives_sums_has_drafts_of_no_known_position() -> None:
    record = arm()
    usage = Usage(completion_tokens=9, verify_steps=4, drafted=12, accepted=5)
    play(record, trace(evidence=Evidence.TOTALS, usage=usage))
    found = values(record, "position")
    assert found["specbench_verify_steps_total", ""] == 4
    assert found["specbench_accepted_tokens_total", "unknown"] == 5
    positions = {p for name, p in found if name == "specbench_accepted_tokens_total"}
    assert positions == {"unknown"}  # survival of 0 would be a lie
    assert found["specbench_accepted_per_step_count", ""] == 0


def test_more_positions_than_labels_lose_no_token() -> None:
    record = arm()
    record.step(step(0, 40, depth=50))
    found = values(record, "position")
    by_position = [v for (name, p), v in found.items() if name == "specbench_accepted_tokens_total"]
    assert len(by_position) == c.MOST_POSITIONS + 1
    assert sum(by_position) == 40


def test_an_output_that_loops_is_counted() -> None:
    record = arm()
    play(record, trace(step(0, 1), output_ids=tuple(range(4)) * 20))
    play(record, trace(step(0, 1), output_ids=tuple(range(80))))
    assert values(record)["specbench_looping_outputs_total",] == 1


def test_a_point_says_what_it_is_and_a_baseline_has_no_positions() -> None:
    record = arm(SpecConfig.baseline())
    record.step(step(0, 0, depth=0))
    (info,) = (
        family.samples[0]
        for family in text_string_to_metric_families(record.lines()[c.POINT_INFO.name].decode())
    )
    assert info.labels == {
        "arm": "baseline", "point": "k3.bs2", "num_steps": "0", "topk": "1",
        "num_draft_tokens": "1", "batch_size": "2", "temperature": "0.7", "workload": "w",
    }  # fmt: skip
    assert record.lines()[c.ACCEPTED_AT.name] == b""
    assert values(record)["specbench_verify_steps_total",] == 1


def test_lines_are_kept_until_something_is_counted() -> None:
    record = arm()
    before = record.lines()
    assert record.lines() is before
    record.step(step(0, 1))
    assert record.lines() is not before
