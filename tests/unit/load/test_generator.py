from __future__ import annotations

import asyncio
import signal

import pytest

from specbench.backends.base import Event
from specbench.config import Arrival, LoadConfig
from specbench.errors import BackendError, ConfigError, EngineError, WorkloadError
from specbench.load.generator import LoadCancelled, LoadResult, run_load
from specbench.request import Message, Request, SamplingParams
from specbench.trace import Finish, RequestTrace
from tests.fakes import FakeBackend


def requests(count: int, max_tokens: int = 5) -> list[Request]:
    return [
        Request(request_id=f"r{i}", prompt="ab", sampling=SamplingParams(max_tokens=max_tokens))
        for i in range(count)
    ]


def closed(concurrency: int = 1, **other: float) -> LoadConfig:
    return LoadConfig(
        concurrency=concurrency, warmup_requests=0, timeout_s=other.get("timeout_s", 60.0)
    )


def run(backend: FakeBackend, asked: list[Request], load: LoadConfig) -> LoadResult:
    return asyncio.run(run_load(backend, asked, load))


def ids(traces: tuple[RequestTrace, ...]) -> list[str]:
    return [t.request.request_id for t in traces]


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_closed_loop_keeps_n_in_flight(concurrency: int) -> None:
    backend = FakeBackend()
    result = run(backend, requests(10), closed(concurrency))
    assert backend.most_in_flight == result.max_in_flight == min(concurrency, 10)
    assert ids(result.traces) == [f"r{i}" for i in range(10)]
    assert result.wall_ns > 0
    assert {t.finish for t in result.traces} == {Finish.LENGTH}


def test_first_requests_go_out_in_order_and_a_free_slot_takes_the_next() -> None:
    backend = FakeBackend()
    asked = [*requests(1, max_tokens=60), *requests(6)[1:]]
    run(backend, asked, closed(2))
    assert [r.request_id for r in backend.sent] == ["r0", "r1", "r2", "r3", "r4", "r5"]


def test_results_are_in_request_order_whatever_ends_first() -> None:
    seen: list[str] = []
    asked = [*requests(1, max_tokens=60), *requests(4)[1:]]

    async def body() -> LoadResult:
        return await run_load(
            FakeBackend(), asked, closed(4), on_trace=lambda t: seen.append(t.request.request_id)
        )

    assert ids(asyncio.run(body()).traces) == ["r0", "r1", "r2", "r3"]
    assert seen[-1] == "r0"
    assert sorted(seen) == ["r0", "r1", "r2", "r3"]


def test_open_loop_sends_on_time_whatever_the_server_does() -> None:
    """A server that answers nothing still gets every request: no coordinated omission."""
    backend = FakeBackend(hangs=frozenset(f"r{i}" for i in range(5)))
    load = LoadConfig(
        request_rate=500.0, arrival=Arrival.CONSTANT, warmup_requests=0, timeout_s=0.5
    )
    result = run(backend, requests(5), load)
    assert result.max_in_flight == 5
    assert {t.finish for t in result.traces} == {Finish.ERROR}
    first = result.traces[0].due_ns
    assert [t.due_ns - first for t in result.traces] == [i * 2_000_000 for i in range(5)]
    assert all(t.sent_ns >= t.due_ns for t in result.traces)


def test_turns_follow_the_reply_in_the_same_slot() -> None:
    backend = FakeBackend()
    talk = Request(
        request_id="t",
        messages=(Message(role="user", content="one"),),
        follow_ups=("two", "three"),
        sampling=SamplingParams(max_tokens=3),
    )
    result = run(backend, [talk, *requests(1)], closed(1))
    assert ids(result.traces) == ["t", "t#1", "t#2", "r0"]
    assert backend.most_in_flight == 1
    last = result.traces[2].request
    assert [m.role for m in last.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert last.messages[1].content == result.traces[0].text
    assert result.traces[1].due_ns == result.traces[0].end_ns


def test_a_failed_turn_ends_its_conversation_and_nothing_else() -> None:
    backend = FakeBackend(fails={"t": BackendError("no room")})
    talk = Request(
        request_id="t", messages=(Message(role="user", content="one"),), follow_ups=("two",)
    )
    result = run(backend, [talk, *requests(1)], closed(1))
    assert [t.finish for t in result.traces] == [Finish.ERROR, Finish.LENGTH]
    assert result.traces[0].error == "no room"


def test_warm_up_runs_first_and_is_marked() -> None:
    backend = FakeBackend()
    shown: list[RequestTrace] = []

    async def body() -> LoadResult:
        load = LoadConfig(concurrency=2, warmup_requests=3)
        return await run_load(backend, requests(2), load, on_trace=shown.append)

    result = asyncio.run(body())
    assert [r.request_id for r in backend.sent] == [
        "warmup-0:r0",
        "warmup-1:r1",
        "warmup-2:r0",
        "r0",
        "r1",
    ]
    assert len(result.warmup) == 3
    assert [t.warmup for t in shown] == [True, True, True, False, False]
    assert not any(t.warmup for t in result.traces)
    assert result.started_ns >= max(t.end_ns for t in result.warmup)


def test_events_are_shown_as_they_arrive_but_not_those_of_the_warm_up() -> None:
    seen: list[tuple[str, str]] = []

    def look(request: Request, event: Event) -> None:
        seen.append((request.request_id, type(event).__name__))

    load = LoadConfig(warmup_requests=1)
    asyncio.run(run_load(FakeBackend(), requests(1, max_tokens=2), load, on_event=look))
    assert seen == [("r0", "Chunk"), ("r0", "StepTrace"), ("r0", "Chunk"), ("r0", "Finished")]


def test_cancellation_closes_what_is_in_flight_and_keeps_the_rest() -> None:
    backend = FakeBackend(hangs=frozenset({"r1", "r2"}))
    shown: list[str] = []

    async def body() -> None:
        task = asyncio.create_task(
            run_load(
                backend,
                requests(6),
                closed(2),
                on_trace=lambda t: shown.append(t.request.request_id),
            )
        )
        assert {await backend.hanging.get(), await backend.hanging.get()} == {"r1", "r2"}
        task.cancel()
        with pytest.raises(LoadCancelled) as stopped:
            await task
        partial = stopped.value.result
        assert ids(partial.traces) == ["r0", "r1", "r2"]
        assert [t.finish for t in partial.traces] == [
            Finish.LENGTH,
            Finish.CANCELLED,
            Finish.CANCELLED,
        ]

    asyncio.run(body())
    assert sorted(backend.closed_early) == ["r1", "r2"]
    assert backend.in_flight == 0
    assert sorted(shown) == ["r0", "r1", "r2"]


def test_ctrl_c_keeps_what_was_measured() -> None:
    """The signal cancels the main task; the result is in the exception; Ctrl-C stays Ctrl-C."""
    saved: list[LoadResult] = []

    async def main() -> None:
        try:
            await run_load(
                FakeBackend(delay_s=0.001),
                requests(50),
                closed(2),
                on_trace=lambda t: (
                    signal.raise_signal(signal.SIGINT) if t.request.request_id == "r3" else None
                ),
            )
        except LoadCancelled as stopped:
            saved.append(stopped.result)
            raise

    # a suite that was started in the background has SIGINT ignored, and asyncio leaves it so
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ids(saved[0].traces)[:4] == ["r0", "r1", "r2", "r3"]
    assert len(saved[0].traces) < 50


def test_a_broken_engine_stops_the_run_and_is_raised_bare() -> None:
    backend = FakeBackend(fails={"r1": EngineError("broken")}, hangs=frozenset({"r0"}))
    shown: list[tuple[str, Finish]] = []

    async def body() -> None:
        await run_load(
            backend,
            requests(9),
            closed(2),
            on_trace=lambda t: shown.append((t.request.request_id, t.finish)),
        )

    with pytest.raises(EngineError, match="broken"):
        asyncio.run(body())
    assert sorted(shown) == [("r0", Finish.CANCELLED), ("r1", Finish.ERROR)]


def test_no_requests_is_an_error() -> None:
    with pytest.raises(WorkloadError):
        run(FakeBackend(), [], closed())


def test_follow_ups_of_a_plain_prompt_are_refused_before_anything_is_sent() -> None:
    backend = FakeBackend()
    with pytest.raises(ConfigError, match="not a conversation"):
        run(backend, [Request(request_id="r", prompt="a", follow_ups=("b",))], closed())
    assert backend.sent == []


def test_client_lag_is_reported() -> None:
    result = run(FakeBackend(delay_s=0.02), requests(1, max_tokens=4), closed())
    assert result.client_lag.ticks >= 1


def test_due_times_that_are_given_win_over_those_that_are_drawn() -> None:
    load = LoadConfig(request_rate=0.001, arrival=Arrival.TRACE, warmup_requests=1)
    asked = requests(3)
    result = asyncio.run(run_load(FakeBackend(), asked, load, due_ns=(0, 5_000_000, 5_000_000)))
    start = result.traces[0].due_ns
    assert [trace.due_ns - start for trace in result.traces] == [0, 5_000_000, 5_000_000]


@pytest.mark.parametrize(
    ("load", "due_ns", "says"),
    [
        (LoadConfig(request_rate=9.0), (0, 1), "2 due times for 3 requests"),
        (LoadConfig(), (0, 1, 2), "in an open loop"),
        (LoadConfig(request_rate=9.0, arrival=Arrival.TRACE), (), "arrival=trace without"),
    ],
)
def test_due_times_that_do_not_fit_are_refused(
    load: LoadConfig, due_ns: tuple[int, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        asyncio.run(run_load(FakeBackend(), requests(3), load, due_ns=due_ns))
