from __future__ import annotations

import asyncio
from typing import Any

import pytest

from specbench.backends.base import Event, Finished
from specbench.backends.sglang import SGLangBackend
from specbench.errors import BackendError, ConfigError
from specbench.request import Message, Request, SamplingParams
from specbench.trace import Chunk, Finish, Usage
from tests.scripted_http import Reply, Scripted, as_events, as_json, scripted

INFO = {"version": "0.5.23", "speculative_algorithm": None, "model_path": "m"}
REQUEST = Request(
    request_id="r",
    prompt="hello",
    sampling=SamplingParams(max_tokens=4, temperature=0.5, seed=3),
)
SPEC = {
    "spec_verify_ct": 1,
    "spec_num_correct_drafts": 2,
    "spec_num_proposed_drafts": 3,
    "spec_correct_drafts_histogram": [0, 0, 1],
}


def stream(answer: Reply, request: Request = REQUEST, **info: Any) -> tuple[list[Event], Scripted]:
    async def body() -> tuple[list[Event], Scripted]:
        routes = {"/server_info": as_json({**INFO, **info}), "/generate": answer}
        async with scripted(routes) as server:
            backend = SGLangBackend(server.url)
            await backend.open()
            try:
                return [event async for event in backend.stream(request)], server
            finally:
                await backend.close()

    return asyncio.run(body())


def event(text: str, ids: list[int], total: int, reason: Any = None, **more: Any) -> dict[str, Any]:
    meta = {"completion_tokens": total, "finish_reason": reason, "prompt_tokens": 2, **more}
    return {"text": text, "output_ids": ids, "meta_info": meta}


LENGTH = {"type": "length", "length": 4}
EXPECTED = Finished(
    finish=Finish.LENGTH,
    usage=Usage(
        prompt_tokens=2,
        completion_tokens=4,
        verify_steps=1,
        drafted=3,
        accepted=2,
        histogram=(0, 0, 1),
    ),
    output_ids=(7, 8, 9, 10),
)


def test_whole_text_in_every_event() -> None:
    events, server = stream(
        as_events(event(" é", [7], 1), event(" é b c d", [7, 8, 9, 10], 4, LENGTH, **SPEC))
    )
    assert [(e.tokens, e.text) for e in events if isinstance(e, Chunk)] == [
        (1, " é"),
        (3, " b c d"),
    ]
    assert events[-1] == EXPECTED
    assert server.asked[-1] == (
        "/generate",
        {
            "text": "hello",
            "sampling_params": {"max_new_tokens": 4, "temperature": 0.5, "sampling_seed": 3},
            "stream": True,
        },
    )


def test_pieces_of_text_when_the_server_streams_pieces() -> None:
    events, _ = stream(
        as_events(event(" é", [7], 1), event(" b c d", [8, 9, 10], 4, LENGTH, **SPEC)),
        incremental_streaming_output=True,
    )
    assert [e.text for e in events if isinstance(e, Chunk)] == [" é", " b c d"]
    assert events[-1] == EXPECTED


def test_text_that_the_server_takes_back_is_not_delivered_twice() -> None:
    events, _ = stream(
        as_events(event("ab##", [7], 1), event("ab", [7, 8], 2, {"type": "stop", "matched": "##"}))
    )
    assert [(e.tokens, e.text) for e in events if isinstance(e, Chunk)] == [(1, "ab##"), (1, "")]


def test_ids_as_prompt() -> None:
    request = Request(request_id="r", prompt_ids=(1, 2))
    _, server = stream(as_events(event("a", [7], 1, {"type": "stop"})), request)
    assert server.asked[-1][1]["input_ids"] == [1, 2]
    assert "text" not in server.asked[-1][1]


def test_no_chat_template_here() -> None:
    talk = Request(request_id="r", messages=(Message(role="user", content="hi"),))
    with pytest.raises(ConfigError, match="--backend openai"):
        stream(as_events(), talk)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (as_events(event("a", [7], 1)), "no finish_reason"),
        (as_events(event("a", [7], 1, {"type": "abort", "message": "too long"})), "too long"),
        (as_events({"error": {"message": "engine died"}}), "engine died"),
        (as_events(event("a", [7], 1, {"type": ["stop"]})), r"finished request \(\['stop'\]\)"),
        (as_events(event("a", [7], 1, {"type": "x", "message": {"a": 1}})), "finished request"),
        (as_events(event("a", [7], 3), event("ab", [7, 8], 2)), "went back from 3 to 2"),
        (as_events(event("a", [7], -4)), "completion_tokens is -4"),
        (as_events({"meta_info": 3}), "meta_info"),
        (as_events({"output_ids": "x"}), "output_ids"),
        (as_json({"error": {"message": "no room"}}, 400), "no room"),
    ],
)
def test_streams_that_make_no_sense(answer: Reply, said: str) -> None:
    with pytest.raises(BackendError, match=said):
        stream(answer)
