from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from specbench.backends.speculation import (
    read_ids,
    read_meta_info,
    read_openai_usage,
    read_steps,
)
from specbench.config import SpecConfig
from specbench.errors import BackendError
from specbench.request import Request
from specbench.trace import Usage
from tests.fakes import fake_steps

USAGE = {"prompt_tokens": 5, "completion_tokens": 11, "total_tokens": 16}
# The worked example of the ledger (b.3), request A: chain of 3, accepted [3, 2, 0, 1].
FULL = Usage(
    prompt_tokens=5,
    completion_tokens=11,
    verify_steps=4,
    drafted=12,
    accepted=6,
    histogram=(1, 1, 1, 1),
)
NEW = {
    "spec_verify_ct": 4,
    "spec_accept_length": 2.75,
    "spec_accept_rate": 0.5,
    "spec_num_correct_drafts": 6,
    "spec_num_proposed_drafts": 12,
    "spec_correct_drafts_histogram": [1, 1, 1, 1],
}
OLD = {
    "spec_verify_ct": 4,
    "spec_accept_token_num": 6,
    "spec_draft_token_num": 12,
    "spec_accept_histogram": [1, 1, 1, 1],
}
VLLM = {
    "mean_acceptance_length": 2.5,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [1, 1, 1, 1],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 6,
    "num_draft_tokens": 12,
    "num_spec_tokens": 3,
    "per_step_accepted": [3, 2, 0, 1],
}


@pytest.mark.parametrize("names", [NEW, OLD])
def test_meta_info_before_and_after_the_rename(names: dict[str, Any]) -> None:
    meta = {"id": "x", "prompt_tokens": 5, "completion_tokens": 11, **names}
    assert read_meta_info(meta) == FULL


def test_the_oldest_name_of_the_accepted_drafts() -> None:
    assert read_meta_info({"spec_accepted_tokens": 6}).accepted == 6


def test_without_speculation_nothing_is_invented() -> None:
    plain = Usage(prompt_tokens=5, completion_tokens=11)
    assert read_meta_info({"prompt_tokens": 5, "completion_tokens": 11}) == plain
    assert read_openai_usage({"usage": USAGE}) == plain
    assert read_openai_usage({}) == Usage()


@pytest.mark.parametrize(
    "extra",
    [
        {"metrics": {"speculative_decoding": VLLM, "queue_time_ms": 1.0}},
        {"sglext": {"spec_tokens_details": NEW}},
    ],
)
def test_openai_answers(extra: dict[str, Any]) -> None:
    assert read_openai_usage({"usage": USAGE, **extra}) == FULL


@pytest.mark.parametrize("cached", [0, 3])
def test_prefix_cache_hits(cached: int) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    assert read_openai_usage({"usage": {**USAGE, **details}}).cached_tokens == cached
    assert read_meta_info({"cached_tokens": cached}).cached_tokens == cached
    usage = asdict(Usage(cached_tokens=cached))
    assert read_openai_usage({"specbench": {"usage": usage}}).cached_tokens == cached


def test_a_server_that_tells_no_hits_is_not_taken_for_one_without() -> None:
    assert read_openai_usage({"usage": {**USAGE, "prompt_tokens_details": None}}) == Usage(
        prompt_tokens=5, completion_tokens=11
    )
    with pytest.raises(BackendError, match="prompt_tokens_details"):
        read_openai_usage({"usage": {"prompt_tokens_details": 3}})


def test_llama_cpp_gives_totals() -> None:
    got = read_openai_usage({"usage": USAGE, "timings": {"draft_n": 12, "draft_n_accepted": 6}})
    assert got == Usage(prompt_tokens=5, completion_tokens=11, drafted=12, accepted=6)


def test_null_metrics_of_other_requests() -> None:
    got = read_openai_usage({"usage": USAGE, "metrics": {"speculative_decoding": None}})
    assert got.verify_steps is None


def test_our_own_extension() -> None:
    usage = {**asdict(FULL), "histogram": [1, 1, 1, 1]}
    assert read_openai_usage({"usage": USAGE, "specbench": {"usage": usage}}) == FULL
    steps = fake_steps(Request(request_id="r", prompt="abc"), SpecConfig.chain(3))
    wire = [{**asdict(s), "ranks": list(s.ranks)} for s in steps]
    assert read_steps({"steps": wire}) == steps
    assert read_steps({}) == ()
    assert read_ids({"output_ids": [4, 5]}) == (4, 5)
    assert read_ids({}) is None


@pytest.mark.parametrize("steps", [[{"accepted": 1}], [{"novel": 1}], [7], 7, [None]])
def test_steps_of_another_version_are_refused(steps: Any) -> None:
    with pytest.raises(BackendError, match="same version"):
        read_steps({"steps": steps})


def test_an_impossible_step_is_refused() -> None:
    step = asdict(fake_steps(Request(request_id="r", prompt="abc"), SpecConfig.chain(3))[0])
    with pytest.raises(BackendError, match="accepted 9"):
        read_steps({"steps": [{**step, "accepted": 9}]})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_step", "x"),
        ("drafted", 3.0),
        ("draft_ns", 2**70),
        ("committed", True),
        ("depth", 10**12),
        ("drafted", 10**12),
        ("ranks", [0, "1"]),
        ("lost", [2.5]),
    ],
)
def test_a_step_of_odd_numbers_is_refused(name: str, value: Any) -> None:
    step = asdict(fake_steps(Request(request_id="r", prompt="abc"), SpecConfig.chain(3))[0])
    wide = {"depth": 10**12, "drafted": 10**12} if name == "depth" else {}
    with pytest.raises(BackendError, match=f"cannot be read: {name} is"):
        read_steps({"steps": [{**step, **wide, name: value}]})


@pytest.mark.parametrize("value", [-1, 1.5, "3", True, [1], 2**53, float("inf")])
def test_a_count_must_be_one(value: Any) -> None:
    with pytest.raises(BackendError, match="spec_verify_ct"):
        read_meta_info({"spec_verify_ct": value})


@pytest.mark.parametrize("value", [3, [1.5], [-1], [True], "ab"])
def test_a_histogram_must_be_counts(value: Any) -> None:
    with pytest.raises(BackendError, match="histogram"):
        read_meta_info({"spec_correct_drafts_histogram": value})
