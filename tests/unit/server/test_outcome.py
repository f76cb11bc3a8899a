from __future__ import annotations

import asyncio

import pytest

from specbench.backends.base import Finished
from specbench.config import SpecConfig
from specbench.errors import BackendError
from specbench.request import Request, SamplingParams
from specbench.server.outcome import Outcome, collect
from specbench.trace import Chunk, Finish, StepTrace, Usage
from tests.fakes import FakeBackend, fake_ids, fake_steps

REQUEST = Request(request_id="r", prompt="abc", sampling=SamplingParams(max_tokens=11))


def outcome(max_tokens: int = 11, spec: SpecConfig | None = None) -> Outcome:
    backend = FakeBackend(spec=spec or SpecConfig.chain(3))
    sampling = SamplingParams(max_tokens=max_tokens)
    request = Request(request_id="r", prompt="abc", sampling=sampling)
    return asyncio.run(collect(backend.stream(request)))


def step(accepted: int, drafted: int = 3) -> StepTrace:
    return StepTrace(
        batch_step=0,
        batch=1,
        committed=4,
        drafted=drafted,
        depth=3,
        accepted=accepted,
        emitted=accepted + 1,
    )


def test_usage() -> None:
    assert outcome().usage() == {"prompt_tokens": 3, "completion_tokens": 11, "total_tokens": 14}


def test_counts_that_the_backend_does_not_give_are_null() -> None:
    bare = Outcome()
    bare.add(Chunk(at_ns=1, tokens=2, text="x"))
    bare.add(Finished(finish=Finish.STOP))
    assert bare.usage() == {"prompt_tokens": None, "completion_tokens": 2, "total_tokens": None}
    assert bare.finish_reason == "stop"


def test_sglang_formulas_on_the_worked_example() -> None:
    """Ledger b.3, request A: chain of 3, accepted [3, 2, 0, 1], 11 tokens, prefill included."""
    done = Outcome()
    for accepted in (3, 2, 0, 1):
        done.add(step(accepted))
    usage = Usage(prompt_tokens=3, completion_tokens=11)
    done.add(Finished(finish=Finish.LENGTH, usage=usage))
    assert done.meta_info(SpecConfig.chain(3)) == {
        "prompt_tokens": 3,
        "completion_tokens": 11,
        "spec_verify_ct": 4,
        "spec_accept_length": 2.75,
        "spec_accept_rate": 0.5,
        "spec_num_correct_drafts": 6,
        "spec_num_proposed_drafts": 12,
        "spec_correct_drafts_histogram": [1, 1, 1, 1],
    }


def test_a_tree_divides_by_its_nodes() -> None:
    tree = SpecConfig(num_steps=3, topk=2, num_draft_tokens=8)
    done = Outcome()
    done.add(step(2, drafted=7))
    done.add(Finished(finish=Finish.STOP, usage=Usage(completion_tokens=4)))
    meta = done.meta_info(tree)
    assert meta["spec_accept_rate"] == 2 / 7
    assert meta["spec_correct_drafts_histogram"] == [0, 0, 1]


def test_no_speculation_no_fields() -> None:
    plain = outcome(spec=SpecConfig.baseline()).meta_info(SpecConfig.baseline())
    assert plain == {"prompt_tokens": 3, "completion_tokens": 11}
    assert "spec_verify_ct" not in outcome(max_tokens=1).meta_info(SpecConfig.chain(3))


def test_the_extension_has_all_that_the_engine_gave() -> None:
    extension = outcome().extension()
    assert extension["output_ids"] == list(fake_ids(REQUEST))
    assert extension["usage"]["verify_steps"] == 4
    steps = fake_steps(REQUEST, SpecConfig.chain(3))
    assert [s["accepted"] for s in extension["steps"]] == [s.accepted for s in steps]


@pytest.mark.parametrize("finish", [Finish.ERROR, Finish.CANCELLED])
def test_a_broken_request_is_no_stop(finish: Finish) -> None:
    broken = Outcome()
    broken.add(Finished(finish=finish))
    with pytest.raises(BackendError, match=finish.value):
        broken.finish_reason  # noqa: B018


def test_a_stream_without_an_end_has_no_totals() -> None:
    unfinished = Outcome()
    with pytest.raises(BackendError, match="without saying why"):
        unfinished.usage()


def test_cached_tokens_are_named_where_a_prefix_cache_is_looked_at() -> None:
    found = Outcome()
    found.add(Chunk(at_ns=1, tokens=2, text="x"))
    found.add(Finished(finish=Finish.STOP, usage=Usage(prompt_tokens=9, cached_tokens=0)))
    assert found.usage()["prompt_tokens_details"] == {"cached_tokens": 0}
    assert found.meta_info(SpecConfig.chain(3))["cached_tokens"] == 0
    assert "prompt_tokens_details" not in outcome().usage()
    assert "cached_tokens" not in outcome().meta_info(SpecConfig.chain(3))
