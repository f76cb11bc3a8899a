"""Facts of a step must not contradict each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.errors import EngineError
from specbench.request import Request
from specbench.trace import Chunk, Evidence, Finish, RequestTrace, StepTrace


def _step(*, drafted: int = 3, depth: int = 3, accepted: int = 1, emitted: int = 2) -> StepTrace:
    return StepTrace(
        batch_step=0,
        batch=1,
        committed=5,
        drafted=drafted,
        depth=depth,
        accepted=accepted,
        emitted=emitted,
        draft_ns=1,
        extend_ns=2,
        verify_ns=3,
        other_ns=4,
    )


def test_the_parts_sum_to_the_step() -> None:
    assert _step().wall_ns == 10


@given(st.integers(-1, 5), st.integers(-1, 5), st.integers(-1, 5), st.integers(-1, 6))
def test_impossible_steps_are_refused(
    drafted: int, depth: int, accepted: int, emitted: int
) -> None:
    possible = 0 <= accepted <= min(drafted, depth) and 0 <= emitted <= accepted + 1
    if possible:
        assert _step(drafted=drafted, depth=depth, accepted=accepted, emitted=emitted)
    else:
        with pytest.raises(EngineError):
            _step(drafted=drafted, depth=depth, accepted=accepted, emitted=emitted)


def test_text_joins_the_chunks() -> None:
    trace = RequestTrace(
        request=Request(request_id="r", prompt="x"),
        due_ns=0,
        sent_ns=0,
        end_ns=3,
        chunks=(Chunk(at_ns=1, tokens=1, text="Hel"), Chunk(at_ns=2, tokens=2, text="lo")),
        steps=(),
        finish=Finish.STOP,
        evidence=Evidence.NONE,
    )
    assert trace.text == "Hello"


def test_evidence_is_ordered() -> None:
    assert Evidence.STEPS > Evidence.HISTOGRAM > Evidence.TOTALS > Evidence.CHUNKS > Evidence.NONE
