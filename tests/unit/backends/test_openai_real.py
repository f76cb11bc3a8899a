"""Answers of real servers, saved as they came (tests/payloads.py), and what becomes of them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from specbench.backends.base import Event, Finished
from specbench.backends.openai import OpenAIBackend
from specbench.config import SpecConfig
from specbench.request import Message, Request, SamplingParams
from specbench.trace import Chunk, Usage
from tests.payloads import llamacpp, text_of, vllm
from tests.scripted_http import EVENTS, Reply, as_events, scripted

TALK = Request(request_id="r", messages=(Message(role="user", content="hi"),))


def delta_event(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def chunks(events: list[Event]) -> list[tuple[int | None, str]]:
    return [(e.tokens, e.text) for e in events if isinstance(e, Chunk)]


@pytest.mark.parametrize(("depth", "said"), [(2, True), (3, False), (4, False)])
def test_a_server_that_drafts_deeper_than_it_is_trusted_to_is_told(depth: int, said: bool) -> None:
    async def body() -> tuple[str, ...]:
        async with scripted(llamacpp(speculates=True)) as server:
            backend = OpenAIBackend(server.url)
            await backend.open()
            await backend.configure(SpecConfig.chain(depth), 1)
            for _ in range(2):
                async for _ in backend.stream(TALK):
                    pass
            await backend.close()
            return backend.notes

    trusted, *more = asyncio.run(body())
    assert "taken on trust" in trusted
    assert ["drafts over 2 tokens a step" in note for note in more] == [True] * said


def real(routes: dict[str, Reply], request: Request = TALK) -> tuple[list[Event], Any]:
    """What a real server's answer becomes, and the body that it was sent."""

    async def body() -> tuple[list[Event], Any]:
        async with scripted(routes) as server:
            backend = OpenAIBackend(server.url)
            await backend.open()
            try:
                return [event async for event in backend.stream(request)], server.asked[-1][1]
            finally:
                await backend.close()

    return asyncio.run(body())


def test_vllm_as_it_answers() -> None:
    """24 tokens in 9 deliveries: 1 + 8 steps + 16 accepted, of which the limit cut one."""
    events, asked = real(vllm(speculates=True))
    assert [tokens for tokens, _ in chunks(events)] == [1, 4, 2, 2, 3, 1, 4, 4, 3]
    assert isinstance(events[-1], Finished)
    assert events[-1].usage == Usage(
        prompt_tokens=10,
        completion_tokens=24,
        verify_steps=8,
        drafted=24,
        accepted=16,
        histogram=(1, 2, 1, 4),
        cached_tokens=0,
    )
    assert events[-1].output_ids is not None
    assert events[-1].output_ids[:5] == (45, 491, 621, 349, 396)
    assert len(events[-1].output_ids) == 24
    assert asked["return_token_ids"] is True
    assert (asked["top_k"], asked["repetition_penalty"]) == (-1, 1.0)


def test_ids_that_are_not_all_there_are_left_out() -> None:
    lost = text_of("vllm_chat.sse").replace('"token_ids":[45]', '"token_ids":null')
    routes = vllm(speculates=True) | {
        "/v1/chat/completions": Reply(pieces=[lost.encode()], content_type=EVENTS)
    }
    events, _ = real(routes)
    assert isinstance(events[-1], Finished)
    assert events[-1].output_ids is None


def test_llamacpp_as_it_answers() -> None:
    """One event a token; its verify steps follow from the totals that each event carries."""
    events, asked = real(llamacpp(speculates=True))
    assert [tokens for tokens, _ in chunks(events)] == [1] * 13
    assert isinstance(events[-1], Finished)
    assert events[-1].usage == Usage(
        prompt_tokens=10,
        completion_tokens=13,
        verify_steps=5,
        drafted=15,
        accepted=7,
        histogram=(1, 2, 1, 1),
        cached_tokens=9,
    )
    assert (asked["timings_per_token"], asked["cache_prompt"]) == (True, False)
    assert (asked["top_k"], asked["min_p"]) == (0, 0.0)


def test_the_end_token_of_llamacpp_is_one_of_its_tokens() -> None:
    """Its last event has no choices and no text, and one token more."""
    end = as_events(
        {**delta_event(content="I"), "timings": {"predicted_n": 1}},
        delta_event("stop"),
        {"choices": [], "usage": {"completion_tokens": 2}, "timings": {"predicted_n": 2}},
    )
    events, asked = real(
        llamacpp(speculates=False) | {"/v1/chat/completions": end},
        dataclasses.replace(TALK, turn=1),
    )
    assert chunks(events) == [(1, "I"), (1, "")]
    assert asked["cache_prompt"] is True


@pytest.mark.parametrize(("speculates", "steps"), [(True, 0), (False, None)])
def test_llamacpp_without_a_draft_is_seen_only_where_it_drafts(
    speculates: bool, steps: int | None
) -> None:
    once = as_events(
        delta_event(content="I"),
        delta_event("length"),
        {"choices": [], "usage": {"completion_tokens": 1}, "timings": {"predicted_n": 1}},
    )
    events, _ = real(llamacpp(speculates=speculates) | {"/v1/chat/completions": once})
    assert isinstance(events[-1], Finished)
    assert (events[-1].usage.verify_steps, events[-1].usage.accepted) == (steps, steps)


def test_what_a_request_asks_goes_over_the_neutral_samplers() -> None:
    sampling = SamplingParams(max_tokens=4, temperature=0.7, top_p=0.8, top_k=20)
    _, asked = real(vllm(speculates=True), dataclasses.replace(TALK, sampling=sampling))
    assert (asked["top_p"], asked["top_k"], asked["min_p"]) == (0.8, 20, 0.0)
