"""Which models can be shared among how many ranks, and by which rule each tensor is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench.checkpoint import read_draft, read_target
from specbench.checkpoint.draft_tensors import MAPS, optional, required
from specbench.checkpoint.target_tensors import target_tensors
from specbench.engine.parallel_plan import check_shares, cutter, local_spec
from specbench.errors import ConfigError
from specbench.modelspec import AttentionSpec, DraftSpec, ExpertSpec, LatentShape, TargetSpec
from tests.tiny import shared_pair


def target_spec(**shape: int) -> TargetSpec:
    """The tiny target with other sizes."""
    spec, _ = read_target(shared_pair().target)
    return replace(spec, shape=replace(spec.shape, **shape))


class Cuts:
    """Ranks that note how they are asked to cut, and keep the whole."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self.dims: list[int] = []

    def shard(self, value: Tensor, dim: int) -> Any:
        self.dims.append(dim)
        return SimpleNamespace(to_local=lambda: value)


@pytest.mark.parametrize(
    ("shape", "count", "told"),
    [
        ({"heads": 6, "kv_heads": 6}, 4, "tensor_parallel=4 does not divide the query heads 6"),
        ({"heads": 6, "kv_heads": 2}, 3, "tensor_parallel=3 and the 2 key/value heads"),
        ({"inner": 98}, 4, "tensor_parallel=4 does not divide the inner width 98"),
    ],
)
def test_what_does_not_divide_is_refused_with_both_numbers(
    shape: dict[str, int], count: int, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_shares(target_spec(**shape), count)
    assert told in str(caught.value)
    assert "of the target (llama)" in str(caught.value)


def test_experts_and_drafts_are_held_to_the_same() -> None:
    experts = ExpertSpec(layers=(1,), count=4, active=2, inner=40, score="softmax", shared_inner=90)
    with pytest.raises(ConfigError, match="=4 does not divide the shared expert's width 90"):
        check_shares(replace(target_spec(), experts=experts), 4)
    draft, _ = read_draft(shared_pair().draft, target_spec())
    with pytest.raises(ConfigError, match=r"=8 does not divide the query heads 4 of the draft"):
        check_shares(draft, 8)


@pytest.mark.parametrize(("count", "heads", "kv_heads"), [(2, 2, 1), (4, 1, 1)])
def test_a_share_has_its_part_of_heads_and_width(count: int, heads: int, kv_heads: int) -> None:
    """Four ranks hold two key heads twice each."""
    spec = target_spec()
    check_shares(spec, count)
    own = local_spec(spec, Cuts(0, count))  # type: ignore[arg-type]
    assert (own.shape.heads, own.shape.kv_heads, own.shape.inner) == (heads, kv_heads, 96 // count)
    assert (own.shape.hidden, own.vocab) == (spec.shape.hidden, spec.vocab)


def test_key_heads_are_repeated_where_ranks_outnumber_them() -> None:
    """Rank r needs the key head of its query heads: 0, 0, 1, 1."""
    ranks = Cuts(0, 4)
    value = torch.arange(2 * 32).repeat_interleave(64).view(64, 64)
    kept = cutter(target_spec(), ranks)("model.layers.0.self_attn.k_proj.weight", value)  # type: ignore[arg-type]
    assert kept[:, 0].tolist() == [*range(32), *range(32), *range(32, 64), *range(32, 64)]


LATENT = LatentShape(q_rank=40, kv_rank=24, nope=20, rope=12, value=28)
EXPERTS = ExpertSpec(
    layers=(1, 2, 3), count=4, active=2, inner=40, score="sigmoid", correction=True, shared_inner=80
)
SPECS = {
    "biases and head norms": AttentionSpec(qkv_bias=True, out_bias=True, head_norm=True),
    "sinks": AttentionSpec(qkv_bias=True, out_bias=True, sinks=True),
    "latent": AttentionSpec(adjacent=True, latent=LATENT),
    "latent, direct": AttentionSpec(adjacent=True, latent=replace(LATENT, q_rank=0)),
}
WHOLE = (
    *("norm", ".mlp.gate.", ".mlp.router.", ".q_a_proj.", ".kv_a_proj_with_mqa.", "fc."),
    *("t2d", "d2t", "down_proj_bias", "o_proj.bias"),
)


@pytest.mark.parametrize("experts", [None, EXPERTS, replace(EXPERTS, clamp=(1.7, 7.0))])
@pytest.mark.parametrize("kind", SPECS)
def test_every_tensor_of_a_target_has_a_rule(kind: str, experts: ExpertSpec | None) -> None:
    """What is not on the short list is cut."""
    spec = replace(target_spec(), attention=SPECS[kind], experts=experts)
    tensors = target_tensors(spec, 1000)
    assert len(tensors) > 30
    held_whole = {name for name, shape in tensors.items() if not cuts(spec, name, shape)}
    assert all(any(part in name for part in WHOLE) for name in held_whole), held_whole


@pytest.mark.parametrize("latent", [None, LATENT])
def test_every_tensor_of_a_draft_has_a_rule(latent: LatentShape | None) -> None:
    """Its fc, norms and vocabulary map are whole on every rank, all else is cut."""
    plain, _ = read_draft(shared_pair().draft, target_spec())
    spec = replace(plain, n_layers=2, norm_before_fc=True, fc_norm=True, fc_bias=True)
    spec = replace(spec, latent=latent, qkv_bias=latent is None, out_bias=latent is None)
    maps = dict.fromkeys(MAPS, (spec.vocab,))
    tensors = {**required(spec, 2), **optional(spec), **maps}
    held_whole = {name for name, shape in tensors.items() if not cuts(spec, name, shape)}
    assert {"fc.weight", "fc.bias", "d2t"} < held_whole
    assert all(any(part in name for part in WHOLE) for name in held_whole), held_whole


def cuts(spec: TargetSpec | DraftSpec, name: str, shape: tuple[int, ...]) -> bool:
    """Whether a rank keeps a part of the tensor only."""
    ranks = Cuts(0, 2)
    cutter(spec, ranks)(name, torch.empty(shape, device="meta"))  # type: ignore[arg-type]
    return bool(ranks.dims)


def test_a_bias_behind_a_sum_is_added_once() -> None:
    """By rank 0 in a target, whose sum it is part of; a draft adds it to the sum."""
    name, ones = "model.layers.0.self_attn.o_proj.bias", torch.ones(4)
    spec = target_spec()
    draft, _ = read_draft(shared_pair().draft, spec)
    kept = [cutter(spec, Cuts(rank, 2))(name, ones).sum().item() for rank in (0, 1)]  # type: ignore[arg-type]
    assert kept == [4.0, 0.0]
    assert cutter(draft, Cuts(1, 2))(name, ones).sum().item() == 4.0  # type: ignore[arg-type]


def test_a_tensor_without_a_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"how model\.surprise\.weight of a target \(llama\)"):
        cutter(target_spec(), Cuts(0, 2))("model.surprise.weight", torch.ones(1))  # type: ignore[arg-type]
