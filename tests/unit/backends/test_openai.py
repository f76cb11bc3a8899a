from __future__ import annotations

import asyncio
from typing import Any

import pytest

from specbench.backends.base import BackendFacts, Event, Finished
from specbench.backends.openai import OpenAIBackend, choose_model
from specbench.errors import BackendError, ConfigError
from specbench.request import Message, Request, SamplingParams
from specbench.trace import Chunk, Finish, Usage
from tests.scripted_http import EVENTS, Reply, Scripted, as_events, as_json, scripted

MODELS = as_json({"data": [{"id": "m", "max_model_len": 512}]})
PROMPT = Request(request_id="r", prompt="hello", sampling=SamplingParams(max_tokens=4))


def stream(
    answer: Reply, request: Request = PROMPT, routes: dict[str, Reply] | None = None
) -> tuple[list[Event], Scripted]:
    path = "/v1/chat/completions" if request.messages else "/v1/completions"

    async def body() -> tuple[list[Event], Scripted]:
        async with scripted({"/v1/models": MODELS, path: answer, **(routes or {})}) as server:
            backend = OpenAIBackend(server.url)
            facts = await backend.open()
            assert (facts.target, facts.max_len) == ("m", 512)
            try:
                return [event async for event in backend.stream(request)], server
            finally:
                await backend.close()

    return asyncio.run(body())


def text_event(text: str, reason: Any = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason}], **more}


def delta_event(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def chunks(events: list[Event]) -> list[tuple[int | None, str]]:
    return [(e.tokens, e.text) for e in events if isinstance(e, Chunk)]


def test_a_server_that_only_streams_text() -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 4}
    events, server = stream(
        as_events(text_event(" é"), text_event(" b", "length"), {"choices": [], "usage": usage})
    )
    assert chunks(events) == [(None, " é"), (None, " b")]
    assert events[-1] == Finished(
        finish=Finish.LENGTH, usage=Usage(prompt_tokens=2, completion_tokens=4)
    )
    assert server.asked[-1] == (
        "/v1/completions",
        {
            "model": "m",
            "prompt": "hello",
            "max_tokens": 4,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )


def test_a_server_that_counts_as_it_goes() -> None:
    """vLLM: one chunk per step, running totals, speculation in the trailing usage chunk."""
    speculation = {"num_spec_steps": 1, "num_accepted_draft_tokens": 2, "num_draft_tokens": 3}
    events, server = stream(
        as_events(
            text_event(" a", usage={"completion_tokens": 1}),
            text_event(" b c d", usage={"completion_tokens": 4}),
            text_event("", "length", usage={"completion_tokens": 4}),
            {
                "choices": [],
                "usage": {"prompt_tokens": 2, "completion_tokens": 4},
                "metrics": {"speculative_decoding": speculation},
            },
        ),
        routes={"/version": as_json({"version": "0.33.0"})},
    )
    assert chunks(events) == [(1, " a"), (3, " b c d")]
    assert isinstance(events[-1], Finished)
    assert events[-1].usage == Usage(
        prompt_tokens=2, completion_tokens=4, verify_steps=1, drafted=3, accepted=2
    )
    assert server.asked[-1][1]["stream_options"]["continuous_usage_stats"] is True


def test_chat_with_an_empty_first_event_and_reasoning() -> None:
    talk = Request(request_id="r", messages=(Message(role="user", content="hi"),))
    events, server = stream(
        as_events(
            delta_event(role="assistant", content=""),
            delta_event(reasoning_content="hm "),
            delta_event(content="yes"),
            delta_event("stop"),
        ),
        talk,
    )
    assert chunks(events) == [(None, "hm "), (None, "yes")]
    assert events[-1] == Finished(finish=Finish.STOP)
    assert server.asked[-1][1]["messages"] == [{"role": "user", "content": "hi"}]


def test_token_ids_are_sent_as_the_prompt() -> None:
    request = Request(request_id="r", prompt_ids=(1, 2))
    _, server = stream(as_events(text_event("a", "stop")), request)
    assert server.asked[-1][1]["prompt"] == [1, 2]


def test_sglang_is_asked_for_its_details() -> None:
    info = {"speculative_algorithm": None, "version": "0.5.23", "context_length": 512}
    _, server = stream(
        as_events(text_event("a", "stop")),
        routes={"/server_info": as_json({**info, "model_path": "m"})},
    )
    assert server.asked[-1][1]["return_spec_tokens_details"] is True


def counted(total: float) -> dict[str, Any]:
    return {"choices": [{"text": "a"}], "usage": {"completion_tokens": total}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (as_events(text_event("a")), "before its request did"),
        (as_events(text_event("a"), done=False), "before its request did"),
        (as_events(text_event("a"), {"error": {"message": "engine died"}}), "engine died"),
        (as_events(text_event("a", "content_filter")), "content_filter"),
        (as_events(text_event("a", ["stop"])), r"ended the request with \['stop'\]"),
        (as_events(text_event("a", 7)), "ended the request with 7"),
        (as_events(*(counted(n) for n in (1, 3, 2))), "completion_tokens went back from 3 to 2"),
        (as_events(counted(-1)), "completion_tokens is -1"),
        (as_events(counted(10**309)), "completion_tokens is 1000"),
        (as_events(counted(1.5)), "completion_tokens is 1.5"),
        (Reply(pieces=[b'data: {"usage": {"completion_tokens": 1e309}, "choices": [{"text": ""}]}'
                       b"\n\n"], content_type=EVENTS), "completion_tokens is inf"),
        (as_events({"choices": ["x"]}), "list of objects"),
        (as_events({"choices": [{"delta": 7}]}), "delta"),
        (Reply(pieces=[b"data: {oops\n\n"], content_type=EVENTS), "no JSON"),
        (as_json({"message": "model is loading"}, 503), "HTTP 503: model is loading"),
    ],
)  # fmt: skip
def test_streams_that_make_no_sense(answer: Reply, said: str) -> None:
    with pytest.raises(BackendError, match=said):
        stream(answer)


def test_which_model() -> None:
    assert choose_model(None, ["m"]) == "m"
    assert choose_model("m", ["l", "m"]) == "m"
    assert choose_model("m", []) == "m"
    with pytest.raises(ConfigError, match="It lists: l"):
        choose_model("m", ["l"])
    with pytest.raises(ConfigError, match="2 models"):
        choose_model(None, ["l", "m"])
    with pytest.raises(ConfigError, match="no model at /v1/models"):
        choose_model(None, [])


@pytest.mark.parametrize("data", [5, "m", {"id": "m"}, [7], [{"id": 3}], None])
def test_a_list_of_models_that_is_none(data: object) -> None:
    with pytest.raises(ConfigError, match="no model at /v1/models"):
        opened(as_json({"data": data}))


@pytest.mark.parametrize("length", [True, -1, "512", 1e309, 0])
def test_a_longest_sequence_that_is_none_is_not_known(length: object) -> None:
    assert opened(as_json({"data": [{"id": "m", "max_model_len": length}]})).max_len is None


def test_one_of_several_models_is_named() -> None:
    listed = as_json({"data": [{"id": "l"}, {"id": "m", "max_model_len": 512}]})
    facts = opened(listed, model="m")
    assert (facts.target, facts.max_len) == ("m", 512)
    with pytest.raises(ConfigError, match=r"lists 2 models \(l, m\)\. Name one with --model"):
        opened(listed)


def opened(models: Reply, model: str | None = None) -> BackendFacts:
    async def body() -> BackendFacts:
        async with scripted({"/v1/models": models}) as server:
            backend = OpenAIBackend(server.url, model=model)
            try:
                return await backend.open()
            finally:
                await backend.close()

    return asyncio.run(body())
