"""Bad input beside good requests: one clear error for it, and nothing of it is left behind.

Four streams decode together while everything wrong is sent to the same engine, in this process and
over HTTP. The streams must come out as each of them alone, and the audit must count no slot after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from specbench.backends.base import Finished
from specbench.backends.inprocess import InProcessBackend
from specbench.config import EngineConfig, SpecConfig
from specbench.errors import BackendError, ConfigError, RequestError
from specbench.request import Request
from specbench.server.app import build_app, serve
from specbench.server.service import SERVICE
from tests.drive import new_request
from tests.tiny import shared_pair

SPEC = SpecConfig(num_steps=3, topk=2, num_draft_tokens=7)
CONFIG = EngineConfig(device="cpu", dtype="float64", max_batch_size=4, max_len=160)
DRAFT_POSITIONS, POISON, VOCAB, DRAFT_VOCAB = 96, 286, 288, 272
GOOD = [new_request(f"good{i}", [5 + i, 70 + 3 * i, 9], 40 + 10 * i) for i in range(4)]
BAD: dict[str, tuple[Request, type[BackendError], str]] = {
    "beyond the lane": (
        new_request("x", [1] * 150, 24),
        RequestError,
        "150 prompt tokens and max_tokens=24 exceed max_len=160",
    ),
    "beyond the draft's rope": (
        new_request("x", [1] * 80, 24),
        RequestError,
        "make 104 tokens, the draft's max_position_embeddings",
    ),
    "no such token": (new_request("x", [1, VOCAB]), RequestError, "outside 0..287"),
    "empty": (new_request("x", []), RequestError, "empty"),
    "NaN scores": (new_request("x", [5, POISON, 7]), BackendError, "not finite"),
}
PROMPT = {"prompt": [5, 6], "max_tokens": 4}
# body, or changes of PROMPT; status; what the message says
REFUSED: dict[str, tuple[str, Any, int, str]] = {
    "unknown field": ("/v1/completions", {"max_token": 4}, 400, "did you mean max_tokens"),
    "presence": ("/v1/completions", {"presence_penalty": 0.5}, 400, "presence_penalty is 0.5"),
    "frequency": ("/v1/completions", {"frequency_penalty": 0.5}, 400, "frequency_penalty is 0.5"),
    "repetition": ("/v1/completions", {"repetition_penalty": 1.2}, 400, "Unknown field: repet"),
    "10 MB": ("/v1/completions", {"prompt": "x" * 10**7}, 413, "larger than"),
    "10 MB of ids": ("/generate", {"input_ids": [7] * 4_000_000}, 413, "larger than"),
    "repetition in /generate": (
        "/generate",
        {"text": "p", "sampling_params": {"repetition_penalty": 1.2}},
        400,
        "sampling_params.repetition_penalty is 1.2",
    ),
    "frequency in /generate": (
        "/generate",
        {"text": "p", "sampling_params": {"frequency_penalty": 1}},
        400,
        "sampling_params.frequency_penalty is 1",
    ),
}


@asynccontextmanager
async def engine_open() -> AsyncIterator[InProcessBackend]:
    """The tiny pair with a poisoned token, and a draft that knows 96 positions."""
    tiny = shared_pair()
    backend = InProcessBackend(tiny.target, tiny.draft, CONFIG)
    await backend.open()
    pair = backend.engine.pair
    pair.target.embedding[POISON] = float("nan")
    assert pair.draft_spec is not None
    rope = replace(pair.draft_spec.rope, max_position=DRAFT_POSITIONS)
    pair.draft_spec = replace(pair.draft_spec, rope=rope)
    await backend.configure(SPEC, 4)
    try:
        yield backend
    finally:
        await backend.close()


async def ids_of(backend: InProcessBackend, request: Request) -> tuple[int, ...]:
    events = [event async for event in backend.stream(request)]
    assert isinstance(events[-1], Finished)
    return events[-1].output_ids or ()


async def alone(backend: InProcessBackend) -> list[tuple[int, ...]]:
    return [await ids_of(backend, request) for request in GOOD]


def assert_nothing_left(backend: InProcessBackend) -> None:
    """No request, no lane, no slot, and no value that would reach a later request."""
    engine = backend.engine
    engine.audit()
    assert engine.idle
    assert engine.slots_in_use == 0
    assert not engine.scheduler.holders
    for pool in (engine.memory.target, engine.memory.draft):
        assert pool is not None
        assert bool(pool.keys.isfinite().all() and pool.values.isfinite().all())


def test_in_this_process() -> None:
    async def goes_away(backend: InProcessBackend) -> None:
        stream = backend.stream(new_request("gone", [8, 9], 90))
        for _ in range(5):
            await anext(stream)
        await stream.aclose()
        backend.engine.audit()

    async def body() -> None:
        async with engine_open() as backend:
            expected = await alone(backend)
            good = [asyncio.create_task(ids_of(backend, request)) for request in GOOD]
            await asyncio.sleep(0.05)
            assert backend.engine.slots_in_use > 0
            for request, kind, said in BAD.values():
                with pytest.raises(kind, match=said):
                    await ids_of(backend, request)
                backend.engine.audit()
            await goes_away(backend)
            assert await asyncio.gather(*good) == expected
            assert_nothing_left(backend)

    asyncio.run(body())


@asynccontextmanager
async def served() -> AsyncIterator[tuple[InProcessBackend, str, aiohttp.ClientSession, Any]]:
    async with engine_open() as backend:
        app = build_app(backend, await backend.open(), spec=SPEC, batch_size=4)
        server = await serve(app, drain_s=0.2)
        try:
            async with aiohttp.ClientSession() as client:
                yield backend, server.url, client, app[SERVICE]
        finally:
            await server.stop()


async def posted(client: aiohttp.ClientSession, url: str, body: object) -> tuple[int, Any]:
    async with client.post(url, json=body) as answer:
        return answer.status, await answer.json()


def wire(request: Request, **more: object) -> dict[str, object]:
    asked = {"prompt": list(request.prompt_ids or ()), "max_tokens": request.sampling.max_tokens}
    return {**asked, "ignore_eos": True, **more}


async def bad_over_http(client: aiohttp.ClientSession, url: str) -> None:
    for name, (request, kind, said) in BAD.items():
        for stream in (False, True):
            async with client.post(
                f"{url}/v1/completions", json=wire(request, stream=stream)
            ) as got:
                text = await got.text()
                # scores turn out to be NaN once a stream's status has been sent
                late = kind is BackendError and stream
                assert got.status in (
                    {200, 500} if late else {500 if kind is BackendError else 400}
                )
                assert (said if name != "empty" else "not empty") in text, name
                assert '"error"' in text
    for name, (path, changes, status, said) in REFUSED.items():
        body = changes if path == "/generate" else {**PROMPT, **changes}
        got_status, data = await posted(client, url + path, body)
        assert got_status == status, name
        assert said in data["error"]["message"], name


async def leaves_in_the_middle(client: aiohttp.ClientSession, url: str) -> None:
    body = wire(new_request("gone", [8, 9], 90), stream=True)
    async with client.post(f"{url}/v1/completions", json=body) as got:
        await got.content.readline()
        got.close()


def test_over_http() -> None:
    async def good(client: aiohttp.ClientSession, url: str, request: Request) -> tuple[int, ...]:
        body = wire(request, return_steps=True)
        status, data = await posted(client, f"{url}/v1/completions", body)
        assert status == 200
        return tuple(data["specbench"]["output_ids"])

    async def body() -> None:
        async with served() as (backend, url, client, service):
            expected = await alone(backend)
            running = [asyncio.create_task(good(client, url, request)) for request in GOOD]
            await asyncio.sleep(0.05)
            await leaves_in_the_middle(client, url)
            await bad_over_http(client, url)
            assert await asyncio.gather(*running) == expected
            while service.in_flight:  # noqa: ASYNC110  # the client that left is noticed soon
                await asyncio.sleep(0.005)
            assert_nothing_left(backend)
            assert [await good(client, url, request) for request in GOOD] == expected

    asyncio.run(body())


def test_a_topk_beyond_the_vocabulary() -> None:
    """Of speculation it is refused, of sampling it means no filter."""
    most = {"num_steps": 1, "topk": DRAFT_VOCAB + 1, "num_draft_tokens": DRAFT_VOCAB + 2}

    async def body() -> None:
        async with served() as (backend, url, client, _):
            asked = {**most, "batch_size": 1}
            status, data = await posted(client, f"{url}/specbench/configure", asked)
            assert status == 400
            assert "topk=273 exceeds the draft's vocabulary of 272" in data["error"]["message"]
            with pytest.raises(ConfigError, match="topk=273"):
                await backend.configure(SpecConfig(**most), 1)
            drawn = [
                await posted(
                    client,
                    f"{url}/v1/completions",
                    {**PROMPT, "max_tokens": 20, "temperature": 1.0, "seed": 3, "top_k": top_k},
                )
                for top_k in (0, VOCAB, VOCAB + 1, 10**6)
            ]
            assert len({data["choices"][0]["text"] for _, data in drawn}) == 1
            assert {status for status, _ in drawn} == {200}
            assert_nothing_left(backend)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (replace(CONFIG, max_len=4096), "max_len=4096 exceeds the target's max_position_emb"),
        (replace(CONFIG, max_len=2048, max_batch_size=10**9), "memory does not suffice"),
    ],
)
def test_settings_that_no_request_could_run_with_are_refused_at_start(
    config: EngineConfig, said: str
) -> None:
    tiny = shared_pair()
    with pytest.raises(ConfigError, match=said):
        asyncio.run(InProcessBackend(tiny.target, tiny.draft, config).open())
