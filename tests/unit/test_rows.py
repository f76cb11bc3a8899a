from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from specbench.columns import STEP_FIELDS, steps_by_request
from specbench.config import Arrival, SpecConfig
from specbench.request import Message, Request, SamplingParams
from specbench.rows import (
    block_parts,
    dump,
    plain,
    request_row,
    row_request,
    row_trace,
    step_columns,
    trace_row,
)
from specbench.trace import Chunk, Evidence, Finish, Rejected, RequestTrace, StepTrace, Usage

ASKED = Request(
    request_id="a#0",
    messages=(Message(role="user", content="hello \ud83d"),),
    sampling=SamplingParams(temperature=0.7, stop=("\n",), stop_token_ids=(2, 3)),
    category="prose",
    prompt_id="a",
    follow_ups=("more",),
)
STEP = StepTrace(
    batch_step=7, batch=2, committed=30, drafted=8, depth=3, accepted=2, emitted=3, ranks=(0, 1)
)
TRACE = RequestTrace(
    request=ASKED,
    due_ns=90,
    sent_ns=100,
    end_ns=400,
    chunks=(Chunk(at_ns=150, tokens=None, text="a"), Chunk(at_ns=140, tokens=3, text="\udc00")),
    steps=(STEP,),
    finish=Finish.LENGTH,
    evidence=Evidence.STEPS,
    usage=Usage(completion_tokens=0, histogram=()),
    output_ids=(),
    error="late",
    warmup=True,
)


def test_data_becomes_plain() -> None:
    values = {"spec": SpecConfig.chain(2), "load": Arrival.GAMMA, "path": Path("a"), "t": (1, None)}
    assert plain(values) == {
        "spec": {"num_steps": 2, "topk": 1, "num_draft_tokens": 3},
        "load": "gamma",
        "path": "a",
        "t": [1, None],
    }
    with pytest.raises(TypeError, match="set has no plain form"):
        plain({"s": {1}})
    with pytest.raises(ValueError, match="JSON"):
        dump(float("nan"))


def test_equal_requests_have_one_key_and_others_another() -> None:
    row = request_row(ASKED)
    assert row_request(json.loads(dump(row))) == ASKED
    assert request_row(row_request(row))["key"] == row["key"]
    other = Request(request_id="a#0", prompt="hello", sampling=ASKED.sampling)
    assert request_row(other)["key"] != row["key"]
    ids = Request(request_id="b", prompt_ids=())
    assert row_request(json.loads(dump(request_row(ids)))) == ids


def test_a_trace_comes_back_whole() -> None:
    row = json.loads(dump(trace_row(TRACE, "k")))
    assert row["chunks"] == [[50, -10], [None, 3], ["a", "\udc00"]]
    assert row["usage"] == {"completion_tokens": 0, "histogram": []}
    assert row_trace(row, ASKED, (STEP,)) == TRACE


def test_drafts_that_were_rejected_come_back_with_their_text() -> None:
    kept = dataclasses.replace(TRACE, rejected=(Rejected(ids=(3, 4), text=" \ud83d"),))
    row = json.loads(dump(trace_row(kept, "k")))
    assert row["rejected"] == [[[3, 4]], [" \ud83d"]]
    assert row_trace(row, ASKED, (STEP,)) == kept
    assert "rejected" not in trace_row(TRACE, "k")


def test_what_was_not_said_is_not_written() -> None:
    bare = RequestTrace(
        request=ASKED,
        due_ns=1,
        sent_ns=1,
        end_ns=1,
        chunks=(),
        steps=(),
        finish=Finish.STOP,
        evidence=Evidence.NONE,
    )
    row = trace_row(bare, "k")
    assert not row.keys() & {"usage", "output_ids", "error", "warmup"}
    assert row_trace(row, ASKED, ()) == bare


def test_steps_are_columns() -> None:
    columns = step_columns([TRACE, TRACE])
    assert set(columns) == {"request", *STEP_FIELDS}
    assert columns["request"] == [0, 1]
    assert columns["ranks"] == [(0, 1), (0, 1)]
    assert steps_by_request(json.loads(dump(columns)), 3) == [(STEP,), (STEP,), ()]


def test_a_request_that_is_known_is_not_written_again() -> None:
    parts = block_parts([TRACE, TRACE], set())
    assert parts["inputs"].count(b"\n") == 1
    assert parts["requests"].count(b"\n") == 2
    assert parts["steps"].count(b"\n") == 1
    assert block_parts([TRACE], {request_row(ASKED)["key"]})["inputs"] == b""
