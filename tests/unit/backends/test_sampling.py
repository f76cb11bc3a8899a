from __future__ import annotations

from specbench.backends.sampling import sampling_fields
from specbench.request import SamplingParams


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
