from __future__ import annotations

import dataclasses

from specbench.config import SpecConfig
from specbench.metrics.summary import SummaryInput, summarise
from specbench.report.outputs import PER_CATEGORY, shown_outputs
from specbench.request import Message
from specbench.trace import Rejected
from tests.unit.report.sample_runs import CATEGORIES, sample_input

POINTS = (SpecConfig.baseline(), SpecConfig.chain(3))


def given() -> SummaryInput:
    return sample_input(requests=20, points=POINTS, batch_sizes=(1,))


def test_a_few_of_each_category_of_the_best_arm_step_by_step() -> None:
    runs = given()
    found = shown_outputs(summarise(runs), runs.runs)
    assert [one.category for one in found] == sorted(PER_CATEGORY * list(CATEGORIES))
    assert {one.point for one in found} == {"k3"}
    one = found[0]
    (trace,) = (
        trace
        for run in runs.runs
        if run.point_id == "k3"
        for trace in run.requests
        if trace.request.request_id == one.request_id
    )
    prefill, *steps = one.steps
    assert (prefill.depth, prefill.emitted, prefill.text) == (None, 1, "a ")
    assert [(s.accepted, s.emitted, s.depth) for s in steps] == [
        (s.accepted, s.emitted, s.depth) for s in trace.steps
    ]
    assert one.prompt == "question 0" == trace.request.messages[-1].content
    assert (one.tokens, one.verify_steps) == (trace.usage.completion_tokens, len(trace.steps))
    assert one.accepted == sum(step.accepted for step in trace.steps)


def test_what_rejected_drafts_said_stands_with_their_step() -> None:
    runs = given()
    (run,) = [run for run in runs.runs if run.point_id == "k3"][:1]
    first, second, *_ = run.requests
    told = tuple(Rejected(ids=(i,), text=f"no{i}") for i in range(len(first.steps)))
    kept = (dataclasses.replace(first, rejected=told), second)
    found = shown_outputs(summarise(runs), [dataclasses.replace(run, requests=kept)])
    (one,) = [o for o in found if o.request_id == first.request.request_id]
    assert [s.rejected for s in one.steps] == [None, *(r.text for r in told)]
    (other,) = [o for o in found if o is not one]
    assert {s.rejected for s in other.steps} == {None}


def test_without_a_best_arm_the_baseline_is_shown() -> None:
    runs = sample_input(requests=5, points=(SpecConfig.baseline(),), batch_sizes=(1,))
    found = shown_outputs(summarise(runs), runs.runs)
    assert {one.point for one in found} == {"base"}
    assert {step.accepted for one in found for step in one.steps} == {0}


def test_a_stream_whose_deliveries_are_no_steps_is_not_shown() -> None:
    runs = given()
    (run,) = [run for run in runs.runs if run.point_id == "k3"][:1]
    merged = tuple(dataclasses.replace(t, chunks=t.chunks[:-1]) for t in run.requests)
    assert shown_outputs(summarise(runs), [dataclasses.replace(run, requests=merged)]) == ()


def test_a_conversation_shows_what_was_asked_last_and_long_texts_are_cut() -> None:
    runs = given()
    run = next(run for run in runs.runs if run.point_id == "k3")
    trace = run.requests[0]
    asked = dataclasses.replace(
        trace.request,
        prompt=None,
        messages=(Message(role="user", content="old"), Message(role="user", content="x" * 9000)),
    )
    steps, chunks = [*trace.steps] * 300, [*trace.chunks]
    talk = dataclasses.replace(
        trace, request=asked, steps=steps, chunks=chunks[:1] + chunks[-1:] * len(steps)
    )
    found = shown_outputs(summarise(runs), [dataclasses.replace(run, requests=(talk,))])
    assert found[0].prompt == "x" * 600 + "…"
    assert len(found[0].steps) == 200
    assert found[0].cut == len(steps) + 1 - 200
    assert found[0].verify_steps == len(steps)
    assert found[0].accepted == sum(step.accepted for step in steps)
