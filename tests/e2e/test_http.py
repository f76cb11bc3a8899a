"""The network path: generator, HTTP backends and server over real loopback connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from specbench.backends.openai import OpenAIBackend
from specbench.backends.sglang import SGLangBackend
from specbench.config import Arrival, LoadConfig, SpecConfig
from specbench.errors import BackendError, ConfigError, UnreachableError
from specbench.load.generator import LoadCancelled, run_load
from specbench.request import Message, Request, SamplingParams
from specbench.server.app import RunningServer, build_app, serve
from specbench.trace import Evidence, Finish, RequestTrace
from tests.fakes import FakeBackend, fake_ids, fake_steps, fake_text

T = TypeVar("T")
Remote = OpenAIBackend | SGLangBackend
PROTOCOLS: list[Callable[..., Remote]] = [OpenAIBackend, SGLangBackend]


@asynccontextmanager
async def serving(fake: FakeBackend, **options: object) -> AsyncIterator[RunningServer]:
    facts = await fake.open()
    app = build_app(fake, facts, spec=fake.spec, batch_size=4, **options)  # type: ignore[arg-type]
    server = await serve(app, drain_s=0.2)
    try:
        yield server
    finally:
        await server.stop()


def over_http(
    fake: FakeBackend,
    protocol: Callable[..., Remote],
    use: Callable[[Remote], Awaitable[T]],
    **options: object,
) -> T:
    async def body() -> T:
        async with serving(fake, **options) as server:
            remote = protocol(server.url)
            await remote.open()
            try:
                return await use(remote)
            finally:
                await remote.close()

    return asyncio.run(body())


def prompts(count: int, max_tokens: int = 9) -> list[Request]:
    return [
        Request(
            request_id=f"r{i}",
            prompt=f"p{i}",
            sampling=SamplingParams(max_tokens=max_tokens, seed=0),
        )
        for i in range(count)
    ]


QUIET = LoadConfig(warmup_requests=0, timeout_s=30.0)


def facts_of(trace: RequestTrace) -> tuple[object, ...]:
    """What must be the same whichever way a request went."""
    return (
        trace.finish,
        trace.text,
        [(c.tokens, c.text) for c in trace.chunks],
        trace.steps,
        trace.output_ids,
        trace.evidence,
        trace.error,
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_over_http_equals_the_same_request_made_directly(
    protocol: Callable[..., Remote],
) -> None:
    asked = [*prompts(2), Request(request_id="ids", prompt_ids=(5, 6, 7))]

    async def load(backend: Remote | FakeBackend) -> list[tuple[object, ...]]:
        return [facts_of(t) for t in (await run_load(backend, asked, QUIET)).traces]

    direct = asyncio.run(load(FakeBackend()))
    assert over_http(FakeBackend(), protocol, load) == direct
    assert {facts[5] for facts in direct} == {Evidence.STEPS}


def test_conversations_go_through_the_chat_route() -> None:
    fake = FakeBackend()
    talk = Request(
        request_id="t",
        messages=(Message(role="system", content="s"), Message(role="user", content="one")),
        follow_ups=("two",),
        sampling=SamplingParams(max_tokens=6),
    )

    async def use(remote: Remote) -> None:
        first, second = (await run_load(remote, [talk], QUIET)).traces
        assert first.text == fake_text(fake_ids(talk))
        assert first.steps == fake_steps(talk, fake.spec)
        assert second.finish is Finish.LENGTH
        assert [m.role for m in fake.sent[1].messages] == ["system", "user", "assistant", "user"]
        assert fake.sent[1].messages[2].content == first.text

    over_http(fake, OpenAIBackend, use)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_64_at_once(protocol: Callable[..., Remote]) -> None:
    fake = FakeBackend()

    async def use(remote: Remote) -> None:
        load = LoadConfig(concurrency=64, warmup_requests=0, timeout_s=60.0)
        result = await run_load(remote, prompts(130, max_tokens=20), load)
        assert result.max_in_flight == 64
        assert {t.error for t in result.traces} == {""}
        assert {t.text for t in result.traces} == {fake_text(range(100, 120))}
        assert [t.request.request_id for t in result.traces] == [f"r{i}" for i in range(130)]

    over_http(fake, protocol, use)
    assert fake.in_flight == 0
    assert fake.most_in_flight > 1


def test_open_loop_over_http() -> None:
    async def use(remote: Remote) -> None:
        load = LoadConfig(request_rate=400.0, arrival=Arrival.CONSTANT, warmup_requests=1)
        result = await run_load(remote, prompts(8), load)
        assert {t.finish for t in result.traces} == {Finish.LENGTH}
        assert all(t.sent_ns >= t.due_ns for t in result.traces)
        assert len(result.warmup) == 1

    over_http(FakeBackend(), OpenAIBackend, use)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_failure_after_the_first_chunk_reaches_the_trace(
    protocol: Callable[..., Remote],
) -> None:
    fake = FakeBackend(fails={"p1": BackendError("the cache is full")})

    async def use(remote: Remote) -> None:
        traces = (await run_load(remote, prompts(3), QUIET)).traces
        assert [t.finish for t in traces] == [Finish.LENGTH, Finish.ERROR, Finish.LENGTH]
        assert "the cache is full" in traces[1].error
        assert len(traces[1].chunks) == 1

    over_http(fake, protocol, use)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_before_the_first_chunk_has_its_reason(protocol: Callable[..., Remote]) -> None:
    async def use(remote: Remote) -> None:
        (trace,) = (await run_load(remote, prompts(1, max_tokens=5000), QUIET)).traces
        assert trace.finish is Finish.ERROR
        assert "HTTP 400" in trace.error
        assert "max_tokens=5000 does not fit" in trace.error

    over_http(FakeBackend(), protocol, use)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cancelling_the_load_cancels_the_requests_in_the_engine(
    protocol: Callable[..., Remote],
) -> None:
    fake = FakeBackend(hangs=frozenset({"p0", "p1"}))

    async def use(remote: Remote) -> None:
        load = LoadConfig(concurrency=2, warmup_requests=0)
        task = asyncio.create_task(run_load(remote, prompts(4), load))
        assert {await fake.hanging.get(), await fake.hanging.get()} == {"p0", "p1"}
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(LoadCancelled) as stopped:
            await task
        assert [t.finish for t in stopped.value.result.traces] == [Finish.CANCELLED] * 2
        await asyncio.wait_for(fake.idle(), 30)

    over_http(fake, protocol, use)
    assert sorted(fake.closed_early) == ["p0", "p1"]


def test_a_timeout_cancels_the_request_in_the_engine() -> None:
    fake = FakeBackend(hangs=frozenset({"p0"}))

    async def use(remote: Remote) -> None:
        load = LoadConfig(warmup_requests=0, timeout_s=1.0)
        first, second = (await run_load(remote, prompts(2), load)).traces
        assert "1 s" in first.error
        assert second.finish is Finish.LENGTH
        await asyncio.wait_for(fake.idle(), 30)

    over_http(fake, OpenAIBackend, use)
    assert fake.closed_early == ["p0"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_sweep_can_switch_points_over_the_network(protocol: Callable[..., Remote]) -> None:
    fake = FakeBackend()

    async def use(remote: Remote) -> None:
        for spec in (SpecConfig.baseline(), SpecConfig.chain(2)):
            await remote.configure(spec, 2)
            (trace,) = (await run_load(remote, prompts(1), QUIET)).traces
            assert trace.steps == fake_steps(trace.request, spec)
            assert remote.notes == ()

    over_http(fake, protocol, use)
    found = (SpecConfig.chain(3), 4)  # which close puts back
    assert fake.points == [(SpecConfig.baseline(), 2), (SpecConfig.chain(2), 2), found]


def test_a_point_that_the_engine_refuses_is_a_config_error() -> None:
    async def use(remote: Remote) -> None:
        with pytest.raises(ConfigError, match="batch_size=65"):
            await remote.configure(SpecConfig.chain(2), 65)

    over_http(FakeBackend(), SGLangBackend, use)


def test_a_busy_server_does_not_switch() -> None:
    fake = FakeBackend(hangs=frozenset({"p0"}))

    async def use(remote: Remote) -> None:
        task = asyncio.create_task(run_load(remote, prompts(1), QUIET))
        await fake.hanging.get()
        remote.busy_wait_s = 0.0
        with pytest.raises(BackendError, match="in flight"):
            await remote.configure(SpecConfig.chain(2), 2)
        assert fake.points == []
        remote.busy_wait_s = 10.0
        task.cancel()
        await asyncio.wait([task])
        await remote.configure(SpecConfig.chain(2), 2)
        assert fake.points == [(SpecConfig.chain(2), 2)]

    over_http(fake, OpenAIBackend, use)


def test_a_key_is_wanted_and_taken() -> None:
    async def body() -> None:
        async with serving(FakeBackend(), api_key="s3cret") as server:
            for key, fine in ((None, False), ("s3cre", False), ("s3cret", True)):
                remote = OpenAIBackend(server.url, api_key=key)
                try:
                    if fine:
                        await remote.open()
                    else:
                        with pytest.raises(BackendError, match="401"):
                            await remote.open()
                finally:
                    await remote.close()

    asyncio.run(body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_listens(protocol: Callable[..., Remote]) -> None:
    async def body() -> None:
        async with serving(FakeBackend()) as server:
            url = server.url
        remote = protocol(url)
        try:
            with pytest.raises(UnreachableError, match=url):
                await remote.open()
        finally:
            await remote.close()

    asyncio.run(body())


def test_a_server_that_goes_away_fails_requests_but_not_the_run() -> None:
    async def body() -> None:
        fake = FakeBackend(hangs=frozenset({"p1"}))
        async with serving(fake) as server:
            remote = OpenAIBackend(server.url)
            await remote.open()
            task = asyncio.create_task(run_load(remote, prompts(3), QUIET))
            await fake.hanging.get()
        traces = (await task).traces
        await remote.close()
        assert [t.finish for t in traces] == [Finish.LENGTH, Finish.ERROR, Finish.ERROR]
        assert all(t.error for t in traces[1:])

    asyncio.run(body())
