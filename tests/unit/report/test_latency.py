import dataclasses

import pytest

from specbench.metrics.goodput import parse_objectives
from specbench.metrics.summary import Summary, summarise
from specbench.report.document import Table, Text
from specbench.report.latency import latency
from tests.unit.report.sample_runs import sample_input


def tables(summary: Summary) -> list[Table]:
    return [block for block in latency(summary) if isinstance(block, Table)]


def test_a_closed_loop_has_no_lag(summary: Summary) -> None:
    first, second = tables(summary)
    assert first.columns[2:] == ("TTFT", "TPOT", "chunk gap", "end to end")
    assert second.columns[2:] == ("stall-free tok/s p50 / p1",)


def test_an_open_loop_counts_from_when_a_request_was_due(summary: Summary) -> None:
    (first, _) = tables(dataclasses.replace(summary, request_rate=2.0))
    assert first.columns[-2:] == ("sent late by", "first token since due")
    assert all(row[-2] == "0.00 / 0.00" for row in first.rows)


def test_p99_of_few_requests_is_said_to_be_their_slowest(summary: Summary) -> None:
    def told(requests: int) -> bool:
        arms = tuple(
            dataclasses.replace(arm, total=dataclasses.replace(arm.total, requests=requests))
            for arm in summary.arms
        )
        bests = tuple(
            dataclasses.replace(
                best, arm=next(arm for arm in arms if best.arm and arm.key == best.arm.key)
            )
            for best in summary.bests
        )
        blocks = latency(dataclasses.replace(summary, arms=arms, bests=bests))
        return any(
            isinstance(b, Text) and f"With {requests} requests p99" in b.text for b in blocks
        )

    assert told(99)
    assert not told(100)


def test_stated_limits_add_goodput_and_stalls() -> None:
    given = dataclasses.replace(
        sample_input(requests=15, batch_sizes=(1,)),
        objectives=parse_objectives("ttft=100ms,tpot=9.5ms"),
        reader_tok_s=200.0,
    )
    summary = summarise(given)
    _, second = tables(summary)
    assert second.columns[3:] == (
        "stalled s at 200 tok/s",
        "requests that stall",
        "goodput (ttft <= 100 ms, tpot <= 9.5 ms)",
        "good requests/s",
    )
    plain, best = second.rows
    assert plain[4] == "15 of 15"
    assert best[5].startswith("100 % [")
    arm = summary.headline.arm
    assert arm is not None
    assert arm.goodput is not None
    seconds = 15 / (arm.goodput.requests_s or 1)
    assert seconds == pytest.approx(
        sum(run.wall_ns for run in given.runs if run.point_id == arm.key.point_id) / 1e9
    )


def test_requests_that_no_reader_can_be_followed_in_are_counted(summary: Summary) -> None:
    arm = summary.arms[0]
    assert arm.reading is not None
    fewer = dataclasses.replace(arm, reading=dataclasses.replace(arm.reading, requests=28))
    blocks = list(latency(dataclasses.replace(summary, arms=(fewer, *summary.arms[1:]))))
    *_, text = (block.text for block in blocks if isinstance(block, Text))
    assert "2 of 120 requests are not in it" in text
    whole = [block.text for block in latency(summary) if isinstance(block, Text)]
    assert "not in it" not in whole[-1]
