"""Rank 0 is used like any engine, and a rank that goes is told of. One process is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from specbench.engine.parallel_check import RankDisagreement
from specbench.engine.parallel_follow import Folders
from specbench.engine.parallel_lead import Crew, LeadEngine, lead_engine
from specbench.errors import ConfigError, EngineError, RequestError
from tests.drive import drive, new_request, prompts
from tests.ranks import CHAIN, CONFIG, PLAIN, TEXT, TIMEOUT_S, TREE, engine_of
from tests.tiny import TinyPair, shared_pair

TWO = replace(CONFIG, tensor_parallel=2, prefix_reuse=True, prefill_chunk=8)


@pytest.fixture(scope="module")
def lead() -> Iterator[LeadEngine]:
    """An engine of two ranks; its follower ends without an error."""
    pair = shared_pair()
    folders = Folders(target=pair.target, draft=pair.draft)
    engine = lead_engine(folders, TWO, keep_hashes=True, timeout_s=TIMEOUT_S)
    yield engine
    engine.close()


def outputs(engine: object, **sampling: object) -> list[tuple[int, ...]]:
    requests = [new_request(f"r{i}", p, 9, **sampling) for i, p in enumerate(prompts(3))]
    return [outcome.ids for outcome in drive(engine, requests)]  # type: ignore[arg-type]


def test_it_emits_what_one_process_emits(lead: LeadEngine) -> None:
    """Prompts in chunks, more requests than lanes, prefixes reused; greedy and sampled."""
    one = engine_of(shared_pair(), None)
    for point in (PLAIN, CHAIN, TREE):
        one.configure(point, 2)
        lead.configure(point, 2)
        assert outputs(lead) == outputs(one)
    assert outputs(lead, temperature=0.8, seed=3) == outputs(one, temperature=0.8, seed=3)


def test_what_is_refused_or_cancelled_leaves_the_ranks_together(lead: LeadEngine) -> None:
    lead.configure(CHAIN, 2)
    with pytest.raises(RequestError, match="max_len"):
        lead.submit(new_request("long", TEXT, 1000))
    with pytest.raises(ConfigError, match="max_batch_size"):
        lead.configure(CHAIN, 9)
    gone = lead.submit(new_request("gone", TEXT, 30))
    for _ in range(5):
        lead.step()
    lead.cancel(gone)
    lead.cancel(gone)
    assert lead.idle
    assert len(outputs(lead)) == 3


def test_the_gap_of_the_two_best_scores_is_that_of_one_process(lead: LeadEngine) -> None:
    one, request = engine_of(shared_pair(), None), new_request("r", TEXT)
    assert lead.top2_gap(request, [7, 8]) == pytest.approx(one.top2_gap(request, [7, 8]), abs=1e-5)


def test_every_rank_answers_with_its_features_and_hashes(lead: LeadEngine) -> None:
    outputs(lead)
    features = lead.features(TEXT)
    assert features[0].shape == (len(TEXT), 3 * 64)
    assert torch.equal(features[0], features[1])
    hashes = lead.hashes()
    assert len(hashes[0]) > 5
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) > 3


def test_provenance_says_how_many_ranks_there_are(lead: LeadEngine) -> None:
    facts = lead.pair.device_facts
    assert (facts["tensor_parallel"], facts["collectives"], facts["graphs"]) == (
        "2",
        "gloo",
        "eager",
    )


def test_a_rank_that_is_killed_is_named(lead: LeadEngine) -> None:
    """The last test with this engine."""
    lead.submit(new_request("r", TEXT, 30))
    lead._crew._followers[0].kill()
    with pytest.raises(EngineError, match="rank 1 has ended with exit code -9") as caught:
        drive(lead, [])
    assert not isinstance(caught.value, RankDisagreement)


def test_models_that_cannot_be_shared_are_refused_before_a_process_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair: TinyPair = shared_pair()
    monkeypatch.setattr(Crew, "__init__", lambda *_, **__: pytest.fail("it was started"))
    with pytest.raises(ConfigError, match="tensor_parallel=3 does not divide the query heads 4"):
        lead_engine(
            Folders(target=pair.target, draft=pair.draft), replace(CONFIG, tensor_parallel=3)
        )
