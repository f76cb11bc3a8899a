from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from specbench.backends.base import Event, Finished
from specbench.errors import BackendError, EngineError, UnreachableError
from specbench.load.send import evidence_of, send
from specbench.request import Request, SamplingParams
from specbench.trace import Chunk, Evidence, Finish, RequestTrace, Usage
from tests.fakes import FakeBackend, fake_ids, fake_steps, fake_text

REQUEST = Request(request_id="r0", prompt="ab", sampling=SamplingParams(max_tokens=7))


def run(
    backend: FakeBackend, request: Request = REQUEST, *, timeout_s: float = 60.0
) -> list[RequestTrace]:
    kept: list[RequestTrace] = []

    async def body() -> None:
        await send(backend, request, due_ns=None, timeout_s=timeout_s, keep=kept.append)

    asyncio.run(body())
    return kept


def test_a_complete_trace() -> None:
    backend = FakeBackend()
    (trace,) = run(backend)
    assert trace.finish is Finish.LENGTH
    assert trace.text == fake_text(fake_ids(REQUEST))
    assert trace.steps == fake_steps(REQUEST, backend.spec)
    assert trace.output_ids == fake_ids(REQUEST)
    assert trace.evidence is Evidence.STEPS
    assert trace.error == ""
    assert trace.due_ns == trace.sent_ns <= trace.chunks[0].at_ns <= trace.end_ns


def test_due_time_is_kept_apart_from_sent_time() -> None:
    kept: list[RequestTrace] = []
    asyncio.run(send(FakeBackend(), REQUEST, due_ns=5, timeout_s=60, keep=kept.append))
    assert kept[0].due_ns == 5 < kept[0].sent_ns


@pytest.mark.parametrize("error", [BackendError("no room"), UnreachableError("gone")])
def test_a_refusal_becomes_a_trace(error: BackendError | UnreachableError) -> None:
    (trace,) = run(FakeBackend(fails={"r0": error}))
    assert trace.finish is Finish.ERROR
    assert trace.error == str(error)
    assert len(trace.chunks) == 1


def test_an_error_of_the_whole_run_is_kept_and_raised() -> None:
    kept: list[RequestTrace] = []
    backend = FakeBackend(fails={"r0": EngineError("broken")})
    with pytest.raises(EngineError):
        asyncio.run(send(backend, REQUEST, due_ns=None, timeout_s=60, keep=kept.append))
    assert [t.error for t in kept] == ["broken"]


def test_a_timeout_closes_the_stream_and_says_how_long() -> None:
    backend = FakeBackend(hangs=frozenset({"r0"}))
    (trace,) = run(backend, timeout_s=0.01)
    assert trace.finish is Finish.ERROR
    assert "0.01 s" in trace.error
    assert backend.closed_early == ["r0"]
    assert backend.in_flight == 0


def test_a_stream_without_an_end_is_an_error() -> None:
    (trace,) = run(FakeBackend(silent=frozenset({"r0"})))
    assert trace.finish is Finish.ERROR
    assert "without saying why" in trace.error


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_backend_that_gives_up_does_not_stop_the_run(gives_up: bool) -> None:
    class Closing(FakeBackend):
        async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
            yield Chunk(at_ns=1, tokens=1, text="x")
            if gives_up:
                raise asyncio.CancelledError
            yield Finished(finish=Finish.ERROR)

    (trace,) = run(Closing())
    assert trace.finish is Finish.ERROR
    assert trace.error
    assert len(trace.chunks) == 1


def test_cancellation_keeps_what_arrived() -> None:
    backend = FakeBackend(hangs=frozenset({"r0"}))
    kept: list[RequestTrace] = []

    async def body() -> None:
        task = asyncio.create_task(
            send(backend, REQUEST, due_ns=None, timeout_s=60, keep=kept.append)
        )
        assert await backend.hanging.get() == "r0"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())
    assert [(t.finish, len(t.chunks)) for t in kept] == [(Finish.CANCELLED, 1)]
    assert backend.closed_early == ["r0"]


def test_one_token_without_a_step_still_has_the_evidence_of_its_backend() -> None:
    (trace,) = run(
        FakeBackend(),
        Request(request_id="r", prompt="a", sampling=SamplingParams(max_tokens=1)),
    )
    assert trace.steps == ()
    assert trace.evidence is Evidence.STEPS


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(), Evidence.CHUNKS),
        (Usage(drafted=4, accepted=0), Evidence.TOTALS),
        (Usage(verify_steps=3), Evidence.TOTALS),
        (Usage(verify_steps=3, histogram=(3,)), Evidence.HISTOGRAM),
    ],
)
def test_evidence(usage: Usage, expected: Evidence) -> None:
    assert evidence_of([Chunk(at_ns=0, tokens=None)], [], usage) is expected
    assert evidence_of([], [], Usage()) is Evidence.NONE
