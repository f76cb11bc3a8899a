"""The real engine behind the server: every route gives what the engine gives directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from specbench.backends.base import Backend
from specbench.backends.inprocess import InProcessBackend
from specbench.backends.openai import OpenAIBackend
from specbench.backends.sglang import SGLangBackend
from specbench.config import EngineConfig, LoadConfig, SpecConfig
from specbench.load.generator import run_load
from specbench.request import Message, Request, SamplingParams
from specbench.server.app import RunningServer, build_app, serve
from specbench.trace import Evidence, Finish, RequestTrace, StepTrace
from tests.tiny import TinyPair, write_pair

CONFIG = EngineConfig(device="cpu", dtype="float64", max_batch_size=4, max_len=160)
TREE = SpecConfig(num_steps=3, topk=2, num_draft_tokens=7)
POINTS = (SpecConfig.baseline(), SpecConfig.chain(3), TREE)
SAMPLING = SamplingParams(max_tokens=16)
PLAIN = [
    Request(request_id="a", prompt="The first prompt, é", sampling=SAMPLING),
    Request(request_id="b", prompt="another", sampling=replace(SAMPLING, max_tokens=9)),
    Request(request_id="c", prompt_ids=(70, 71, 72, 73), sampling=SAMPLING),
]
TALK = [
    Request(
        request_id="t",
        messages=(Message(role="user", content="hello"),),
        follow_ups=("and then",),
        sampling=SAMPLING,
    )
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_pair(tmp_path_factory.mktemp("pair"))


@asynccontextmanager
async def serving(
    pair: TinyPair, config: EngineConfig = CONFIG
) -> AsyncIterator[tuple[InProcessBackend, RunningServer]]:
    engine = InProcessBackend(pair.target, pair.draft, config)
    facts = await engine.open()
    app = build_app(engine, facts, spec=SpecConfig.baseline(), batch_size=1)
    server = await serve(app, drain_s=0.2)
    try:
        yield engine, server
    finally:
        await server.stop()
        await engine.close()


def untimed(step: StepTrace) -> StepTrace:
    """A step without what differs from run to run."""
    return replace(step, batch_step=0, draft_ns=0, extend_ns=0, verify_ns=0, other_ns=0)


def facts_of(trace: RequestTrace) -> tuple[object, ...]:
    return (
        trace.finish,
        trace.output_ids,
        trace.text,
        [(c.tokens, c.text) for c in trace.chunks],
        [untimed(s) for s in trace.steps],
        trace.evidence,
        trace.usage.completion_tokens,
        trace.error,
    )


async def run_point(
    backend: Backend, spec: SpecConfig, requests: list[Request], concurrency: int = 1
) -> list[RequestTrace]:
    await backend.configure(spec, concurrency)
    load = LoadConfig(concurrency=concurrency, warmup_requests=0, timeout_s=60.0)
    return list((await run_load(backend, requests, load)).traces)


@pytest.mark.parametrize("spec", POINTS, ids=lambda s: s.point_id)
def test_every_route_gives_the_same_tokens_and_steps(pair: TinyPair, spec: SpecConfig) -> None:
    async def body() -> None:
        async with serving(pair) as (engine, server):
            openai, sglang = OpenAIBackend(server.url), SGLangBackend(server.url)
            await openai.open()
            await sglang.open()
            try:
                direct = await run_point(engine, spec, [*PLAIN, *TALK])
                over_openai = await run_point(openai, spec, [*PLAIN, *TALK])
                over_generate = await run_point(sglang, spec, PLAIN)
            finally:
                await openai.close()
                await sglang.close()
        expected = [facts_of(t) for t in direct]
        assert [t.finish for t in direct] == [Finish.LENGTH] * 5
        assert {t.evidence for t in direct} == {Evidence.STEPS}
        assert any(s.accepted for t in direct for s in t.steps) != spec.is_baseline
        assert [facts_of(t) for t in over_openai] == expected
        assert [facts_of(t) for t in over_generate] == expected[:3]

    asyncio.run(body())


def test_points_and_batches_give_the_same_tokens_over_http(pair: TinyPair) -> None:
    async def body() -> None:
        async with serving(pair) as (_, server):
            remote = OpenAIBackend(server.url)
            await remote.open()
            try:
                outputs = [
                    [t.output_ids for t in await run_point(remote, spec, PLAIN * 2, concurrency)]
                    for spec in POINTS
                    for concurrency in (1, 4)
                ]
            finally:
                await remote.close()
        assert all(output == outputs[0] for output in outputs)

    asyncio.run(body())


@pytest.mark.parametrize("kind", [OpenAIBackend, SGLangBackend])
@pytest.mark.parametrize("reuse", [False, True])
def test_hits_of_the_prefix_cache_reach_the_trace(
    pair: TinyPair, kind: type[OpenAIBackend | SGLangBackend], reuse: bool
) -> None:
    """Of a prompt of 4 tokens seen before, 3 rows are reused; without a cache nothing is said."""

    async def body() -> list[int | None]:
        async with serving(pair, replace(CONFIG, prefix_reuse=reuse)) as (_, server):
            remote = kind(server.url)
            await remote.open()
            try:
                traces = await run_point(remote, SpecConfig.chain(3), [PLAIN[2]] * 2)
            finally:
                await remote.close()
        return [trace.usage.cached_tokens for trace in traces]

    assert asyncio.run(body()) == ([0, 3] if reuse else [None, None])


def test_a_request_that_does_not_fit_fails_alone(pair: TinyPair) -> None:
    long = Request(request_id="long", prompt="x" * 200, sampling=SAMPLING)

    async def body() -> None:
        async with serving(pair) as (_, server):
            remote = OpenAIBackend(server.url)
            await remote.open()
            try:
                traces = await run_point(remote, SpecConfig.chain(3), [long, PLAIN[0]], 2)
            finally:
                await remote.close()
        assert [t.finish for t in traces] == [Finish.ERROR, Finish.LENGTH]
        assert "max_len=160" in traces[0].error

    asyncio.run(body())


def test_a_cancelled_request_leaves_no_slot_behind(pair: TinyPair, tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(pair) as (engine, server):
            remote = OpenAIBackend(server.url)
            await remote.open()
            stream = remote.stream(replace(PLAIN[0], sampling=SamplingParams(max_tokens=120)))
            await anext(stream)
            assert engine.engine.slots_in_use > 0
            await stream.aclose()
            await remote.configure(SpecConfig.chain(2), 1)  # waits until the server is idle
            assert engine.engine.idle
            assert engine.engine.slots_in_use == 0
            await remote.close()

    asyncio.run(body())
