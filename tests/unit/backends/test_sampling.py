from __future__ import annotations

import json

from specbench.backends.sampling import neutral_fields, sampling_fields
from specbench.request import SamplingParams
from tests.payloads import text_of


def test_greedy_sends_only_what_every_server_knows() -> None:
    assert sampling_fields(SamplingParams(max_tokens=4, seed=9)) == {
        "max_tokens": 4,
        "temperature": 0.0,
    }


def test_everything_that_is_used_is_sent() -> None:
    sampling = SamplingParams(
        max_tokens=4,
        temperature=0.7,
        top_k=5,
        top_p=0.9,
        min_p=0.1,
        seed=9,
        stop=("a",),
        stop_token_ids=(2,),
        ignore_eos=True,
    )
    assert sampling_fields(sampling, max_tokens="max_new_tokens", seed="sampling_seed") == {
        "max_new_tokens": 4,
        "temperature": 0.7,
        "sampling_seed": 9,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "stop": ["a"],
        "stop_token_ids": [2],
        "ignore_eos": True,
    }


def test_known_servers_are_told_to_leave_the_distribution_alone() -> None:
    """llama.cpp's own defaults are top_k 40, top_p 0.95, min_p 0.05, as its /props say."""
    said = json.loads(text_of("llamacpp_props.json"))["default_generation_settings"]["params"]
    told = neutral_fields("llama.cpp")
    assert said["top_k"] == 40
    assert {name: told[name] for name in ("top_k", "top_p", "min_p")} == {
        "top_k": 0, "top_p": 1.0, "min_p": 0.0
    }  # fmt: skip
    assert set(told) <= set(said)
    for server in ("vllm", "sglang"):
        assert neutral_fields(server)["repetition_penalty"] == 1.0
    assert neutral_fields("specbench") == neutral_fields("") == {}
