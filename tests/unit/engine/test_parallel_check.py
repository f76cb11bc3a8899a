"""What goes round between ranks tells apart what must not be taken for the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench.engine.parallel_check import Agreement, RankDisagreement, row_sums, token_hash
from specbench.engine.verify import Verdict


class Echo:
    """Ranks of which the others have what ``change`` makes of rank 0's numbers."""

    def __init__(self, change: Any = None) -> None:
        self.count, self.commands = 2, None
        self._change = change or (lambda own: own)

    def by_rank(self, own: Tensor) -> Tensor:
        return torch.stack([own, self._change(own.clone())])


def sequence(name: str) -> Any:
    return SimpleNamespace(request=SimpleNamespace(request_id=name))


def verdict(*tokens: int) -> Verdict:
    return Verdict(path=(0,), tokens=tokens, ranks=(), depth=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_single_bit_of_a_feature_changes_its_rows_sum(dtype: torch.dtype) -> None:
    features = torch.randn(3, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    other = features.clone()
    other[1, 5] = (
        torch.nextafter(other[1, 5].float(), torch.tensor(9.0))
        if dtype == torch.float32
        else other[1, 5] * 1.01
    )
    assert (row_sums(features) != row_sums(other)).tolist() == [False, True, False]


def test_rows_that_are_not_finite_are_equal_to_themselves() -> None:
    row = torch.tensor([[float("nan"), float("inf"), -0.0]])
    assert torch.equal(row_sums(row), row_sums(row.clone()))


def test_tokens_in_another_order_have_another_hash() -> None:
    assert len({token_hash(t) for t in ([], [0], [1, 2], [2, 1], [12])}) == 5
    assert -(2**63) <= token_hash([1, 2]) < 2**63


def test_ranks_that_agree_pass_and_leave_a_hash_per_cycle() -> None:
    check = Agreement(Echo(), (1,))  # type: ignore[arg-type]
    check.keep = True
    lanes = [sequence("a"), sequence("b")]
    for tokens in ([4, 5], [4, 6], [4, 5]):
        check.cycle(lanes, torch.zeros(4, 3), [verdict(t) for t in tokens], torch.ones(12, 8))
    first, second, third = check.hashes
    assert first == third != second


def test_padding_lanes_are_not_compared() -> None:
    """They write to one shared slot, in any order."""
    told: list[tuple[int, ...]] = []

    def note(own: Tensor) -> Tensor:
        told.append(tuple(own.shape))
        return own

    check = Agreement(Echo(note), (1,))  # type: ignore[arg-type]
    check.cycle([sequence("a")], torch.zeros(4, 3), [verdict(4)], torch.ones(12, 8))
    assert told == [(1, 3 + 3 + 1)]  # drafted tokens, row sums, hash


def test_a_chunk_of_a_prompt_without_its_end_compares_features_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def all_gather_object(out: list[Any], own: Tensor, group: object) -> None:
        out[:] = [own, own + 1]

    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather_object)
    check = Agreement(Echo(lambda own: own + 1), (1, 4))  # type: ignore[arg-type]
    with pytest.raises(RankDisagreement) as caught:
        check.prompt(sequence("a"), torch.zeros(2, 8), None)
    assert (caught.value.rank, caught.value.cycle) == (1, 0)
    assert "request a: in its prompt rank 1 captured other features" in str(caught.value)
    assert "layer 1 by up to 1, layer 4 by up to 1" in str(caught.value)


def test_a_piece_of_a_prompt_without_captured_features_has_nothing_to_compare() -> None:
    check = Agreement(Echo(lambda own: own + 1), ())  # type: ignore[arg-type]
    check.prompt(sequence("a"), torch.empty(0, 0), None)
