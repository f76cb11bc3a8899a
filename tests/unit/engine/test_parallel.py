"""Several ranks compute what one process computes, each holding a share (engine-spec 9, T21)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specbench.config import SpecConfig
from tests.drafts import Kind, write_kind
from tests.families import written
from tests.ranks import CHAIN, PLAIN, TREE, Runs, all_work, on_ranks, whole_work
from tests.tiny import TinyPair, TinyShape, write_pair

# 290 rows are shared unevenly, and four ranks have two key heads between them.
UNEVEN = TinyShape(vocab=290, draft_vocab=273)
# What each number of ranks runs; four are slow on two cores, so they run what differs for them.
FAMILIES = {
    2: ("llama yarn", "qwen3 biased, yarn", "qwen3_moe", "deepseek_v3", "gpt_oss"),
    4: ("qwen3 biased, yarn", "gpt_oss"),
}
RUNS = {
    2: (("llama", PLAIN), ("llama", CHAIN), ("llama", TREE), ("stacked", TREE), ("latent", CHAIN)),
    4: (("llama", CHAIN), ("llama", TREE)),
}
COUNTS = tuple(RUNS)
ALL_FAMILIES = [(count, name) for count, names in FAMILIES.items() for name in names]
ALL_RUNS = [(count, *run) for count, runs in RUNS.items() for run in runs]
Results = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """By number of ranks what each rank found; of 1 what one process did."""
    folder = tmp_path_factory.mktemp("ranks")
    stacked = Kind(name="", layers=2, bias=True, head_norm=True, flags=("norm_output", "fc_norm"))
    pairs: dict[str, TinyPair] = {
        "llama": write_pair(folder / "llama", UNEVEN),
        "stacked": write_kind(folder / "stacked", stacked),
        "latent": write_kind(folder / "latent", Kind(name="", latent=True)),
    }

    def asked(count: int) -> tuple[dict[str, Path], Runs]:
        runs: Runs = {}
        for name, point in RUNS[count]:
            runs[name] = (pairs[name], (*runs.get(name, (None, ()))[1], point))
        return {name: written(name)[0] for name in FAMILIES[count]}, runs

    found = {1: [whole_work(None, *asked(2))]}
    for count in COUNTS:
        place = folder / str(count)
        place.mkdir()
        found[count] = on_ranks(count, place, all_work, *asked(count))
    return found


@pytest.mark.parametrize(("count", "name"), ALL_FAMILIES)
def test_all_features_and_logits_are_the_whole_models(
    results: Results, count: int, name: str
) -> None:
    """The residual stream at every index, full-size, within 1e-4 of one process in float32."""
    for key in ("features", "logits"):
        whole = torch.tensor(results[1][0][f"{name} {key}"])
        assert whole.abs().max() > 0.5
        for rank in results[count]:
            found = torch.tensor(rank[f"{name} {key}"])
            torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("count", "name"), ALL_FAMILIES)
def test_every_rank_has_the_same_bits(results: Results, count: int, name: str) -> None:
    """Full-size features and logits are equal, not close (engine-spec 9)."""
    first = results[count][0]
    for rank in results[count][1:]:
        for key in (f"{name} features", f"{name} logits"):
            assert rank[key] == first[key]


@pytest.mark.parametrize(("count", "name", "point"), ALL_RUNS, ids=str)
def test_ranks_draft_accept_and_emit_what_one_process_does(
    results: Results, count: int, name: str, point: SpecConfig
) -> None:
    """Plain, by a chain and by a tree: the ids of every request and what each step accepted."""
    whole = results[1][0][f"{name} {point.point_id}"]
    for rank in results[count]:
        assert rank[f"{name} {point.point_id}"] == whole


def test_drafts_are_accepted_in_what_is_compared(results: Results) -> None:
    """A draft that no step accepts would compare equal whatever its shards hold."""
    steps = [n for _, accepted in results[1][0][f"llama {CHAIN.point_id}"] for n in accepted]
    assert sum(steps) > len(steps) / 2


@pytest.mark.parametrize("count", COUNTS)
def test_a_partial_sum_is_caught_with_rank_cycle_and_layer(results: Results, count: int) -> None:
    """F34: captured before the all-reduce, each rank has its own part."""
    for rank in results[count]:
        found = rank["fault partial sum"]
        assert (found["rank"], found["cycle"], found["request"]) == (1, 3, "steady")
        assert "in cycle 3 rank 1 captured other features than rank 0: layer 2 by" in found["text"]


@pytest.mark.parametrize("count", COUNTS)
def test_a_rank_that_decides_otherwise_is_caught(results: Results, count: int) -> None:
    """F35: both ranks' tokens are told, on every rank."""
    for rank in results[count]:
        found = rank["fault other token"]
        assert (found["rank"], found["cycle"], found["request"]) == (count - 1, 3, "steady")
        assert f"in cycle 3 rank {count - 1} committed [" in found["text"]
        assert "7] and rank 0 [" in found["text"]


@pytest.mark.parametrize("count", COUNTS)
def test_a_rank_that_drafts_otherwise_is_caught(results: Results, count: int) -> None:
    """Rows of other tokens would be summed as if they were the same."""
    for rank in results[count]:
        found = rank["fault other draft"]
        assert (found["rank"], found["cycle"]) == (1, 3)
        assert "rank 1 drafted [" in found["text"]
