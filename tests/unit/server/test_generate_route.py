from __future__ import annotations

from typing import Any

import pytest

from specbench.config import SpecConfig
from specbench.errors import UsageError
from specbench.request import SamplingParams
from specbench.server.generate_route import read_generate

SPEC = SpecConfig.chain(3)


def test_a_request_with_everything() -> None:
    asked = read_generate(
        {
            "input_ids": [4, 5],
            "rid": "mine",
            "stream": True,
            "return_logprob": False,
            "sampling_params": {
                "max_new_tokens": 7,
                "temperature": 0.5,
                "top_k": -1,
                "stop": ["x"],
                "sampling_seed": 3,
                "ignore_eos": True,
                "repetition_penalty": 1.0,
            },
        },
        SPEC,
    )
    assert asked.stream
    assert asked.request.prompt_ids == (4, 5)
    assert asked.request.sampling == SamplingParams(
        max_tokens=7, temperature=0.5, seed=3, stop=("x",), ignore_eos=True
    )


def test_defaults() -> None:
    asked = read_generate({"text": "p"}, SPEC)
    assert not asked.stream
    assert asked.request.prompt == "p"
    assert asked.request.sampling == SamplingParams(max_tokens=128)


def test_two_requests_may_share_a_rid() -> None:
    first, second = (read_generate({"text": "p", "rid": "x"}, SPEC) for _ in range(2))
    assert first.request.request_id != second.request.request_id


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "exactly one of text and input_ids"),
        ({"text": "p", "input_ids": [1]}, "exactly one of text and input_ids"),
        ({"text": ""}, "exactly one of text and input_ids"),
        ({"text": ["a", "b"]}, "text"),
        ({"text": "p", "sampling_params": {"max_tokens": 3}}, "did you mean max_new_tokens"),
        ({"text": "p", "sampling_params": {"n": 2}}, "sampling_params.n"),
        ({"text": "p", "sampling_params": [1]}, "no JSON object"),
        ({"text": "p", "return_logprob": True}, "return_logprob"),
        ({"text": "p", "steam": True}, "did you mean stream"),
        ({"text": "p", "sampling_params": {"repetition_penalty": 1.1}}, "repetition_penalty"),
    ],
)
def test_nothing_is_ignored(body: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_generate(body, SPEC)
