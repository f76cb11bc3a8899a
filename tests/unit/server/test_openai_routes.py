from __future__ import annotations

from typing import Any

import pytest

from specbench.errors import UsageError
from specbench.request import Message, SamplingParams
from specbench.server.fields import RefusedError
from specbench.server.openai_routes import read_chat, read_completion

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def test_a_completion_with_everything() -> None:
    asked = read_completion(
        {
            "model": "m",
            "prompt": "p",
            "max_tokens": 7,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 4,
            "min_p": 0.1,
            "seed": 3,
            "stop": "x",
            "stop_token_ids": [2],
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_steps": True,
            "n": 1,
            "user": "u",
            "echo": False,
            "logprobs": None,
            "presence_penalty": 0,
        },
        "m",
    )
    assert asked.stream
    assert asked.request.prompt == "p"
    assert asked.request.sampling == SamplingParams(
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        min_p=0.1,
        seed=3,
        stop=("x",),
        stop_token_ids=(2,),
        ignore_eos=True,
    )


def test_defaults_are_those_of_the_api_but_greedy() -> None:
    sampling = read_completion({"prompt": "p"}, "m").request.sampling
    assert sampling == SamplingParams(max_tokens=16)
    assert read_chat(CHAT, "m").request.sampling == SamplingParams()
    assert read_chat({**CHAT, "top_k": -1}, "m").request.sampling.top_k == 0


@pytest.mark.parametrize(
    ("prompt", "text", "ids"),
    [("p", "p", None), (["p"], "p", None), ([4, 5], None, (4, 5)), ([[4, 5]], None, (4, 5))],
)
def test_prompts(prompt: Any, text: str | None, ids: tuple[int, ...] | None) -> None:
    request = read_completion({"prompt": prompt}, "m").request
    assert (request.prompt, request.prompt_ids) == (text, ids)


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [[1], [2]], 3, [""], [[]], [1, "a"]])
def test_no_prompt(prompt: Any) -> None:
    with pytest.raises(RefusedError, match="prompt"):
        read_completion({"prompt": prompt}, "m")


def test_messages_of_text_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]}
    assert read_chat(body, "m").request.messages == (
        Message(role="system", content="s"),
        Message(role="user", content="ab"),
    )


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"max_token": 3}, "did you mean max_tokens"),
        ({"stream_options": {"include_usag": True}}, "stream_options.include_usag"),
        ({"n": 2}, "n is 2"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "contradicts"),
        ({"max_tokens": "3"}, "an integer"),
        ({"temperature": 1000}, "temperature"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"stream": "yes"}, "true or false"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [{"role": "user", "content": None}]}, "content"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "name"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type"),
    ],
)
def test_nothing_is_ignored(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_chat({**CHAT, **extra}, "m")


def test_another_model_is_not_found() -> None:
    with pytest.raises(RefusedError, match="'x' is not served") as refused:
        read_chat({**CHAT, "model": "x"}, "m")
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
