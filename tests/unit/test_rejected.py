"""What drafts that were rejected said is kept for the requests that a report may show."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from specbench.metrics.example import run_of, trace_of
from specbench.rejected import Rejections
from specbench.report.outputs import PER_CATEGORY
from specbench.trace import ArmRun, Rejected, RequestTrace
from tests.fakes import FakeBackend


class Teller(FakeBackend):
    def text_of(self, ids: Sequence[int]) -> str:
        return "".join(f" w{i}" for i in ids)


def drafted(name: str, category: str = "a") -> RequestTrace:
    trace = trace_of([1, 0, 2], depth=2, name=name)
    steps = tuple(
        dataclasses.replace(step, lost=tuple(range(7, 9 - step.accepted))) for step in trace.steps
    )
    request = dataclasses.replace(trace.request, category=category)
    return dataclasses.replace(trace, steps=steps, request=request)


def block(number: int, *traces: RequestTrace, point_id: str = "k2") -> ArmRun:
    return run_of(*traces, point_id=point_id, block=number)


def test_each_step_says_what_its_rejected_drafts_said() -> None:
    (trace,) = Rejections(Teller()).keep(block(0, drafted("A"))).requests
    assert trace.rejected == (
        Rejected(ids=(7,), text=" w7"),
        Rejected(ids=(7, 8), text=" w7 w8"),
        Rejected(ids=(), text=""),
    )


def test_no_more_requests_are_kept_than_are_shown() -> None:
    rejections = Rejections(Teller())
    names = [f"p{i}" for i in range(PER_CATEGORY + 2)]
    first = rejections.keep(block(0, *(drafted(name) for name in names)))
    assert [bool(t.rejected) for t in first.requests] == [True] * PER_CATEGORY + [False] * 2
    second = rejections.keep(block(1, drafted("x"), drafted("y", "b")))
    assert [bool(t.rejected) for t in second.requests] == [False, True]
    (other,) = rejections.keep(block(0, drafted("z"), point_id="k2-again")).requests
    assert other.rejected


def test_requests_that_cannot_be_shown_take_no_place() -> None:
    rejections = Rejections(Teller())
    trace = drafted("A")
    merged = dataclasses.replace(trace, chunks=trace.chunks[:-1])
    silent = trace_of([1], depth=2, name="B")
    kept = rejections.keep(block(0, *([merged, silent] * PER_CATEGORY), trace)).requests
    assert [bool(t.rejected) for t in kept] == [False] * 2 * PER_CATEGORY + [True]


def test_a_backend_without_a_tokenizer_keeps_counts_alone() -> None:
    arm = block(0, drafted("A"))
    assert Rejections(FakeBackend()).keep(arm) is arm
