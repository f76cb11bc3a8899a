"""d2t holds offsets; anything else that looks valid is recognised (engine-spec 1.8)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specbench.checkpoint.headers import read_header
from specbench.checkpoint.vocab_map import check_vocab_map
from specbench.errors import CheckpointError

IDS = [1, 2, 5, 9]
MOST = 2**63 - 1


def check(
    tmp_path: Path,
    d2t: list[int] | None,
    t2d: list[int] | None,
    vocab: int = 10,
    size: int = 4,
    meaning: str = "offsets",
) -> str:
    tensors = {}
    if d2t is not None:
        tensors["d2t"] = torch.tensor(d2t)
    if t2d is not None:
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool)
        tensors["t2d"][torch.tensor(t2d, dtype=torch.int64)] = True
    save_file(tensors, tmp_path / "maps.safetensors")
    maps = read_header(tmp_path / "maps.safetensors")
    return check_vocab_map(tmp_path, maps, vocab, size, meaning)


def offsets(ids: list[int]) -> list[int]:
    return [target - i for i, target in enumerate(ids)]


def test_offsets_are_right(tmp_path: Path) -> None:
    assert check(tmp_path, offsets(IDS), IDS) == "offsets, checked against t2d"
    assert check(tmp_path, offsets(IDS), None) == "offsets, no t2d to check against"


def test_equal_vocabularies_need_no_map(tmp_path: Path) -> None:
    assert check(tmp_path, None, None, vocab=4) == "none: the vocabularies are equal"
    assert check(tmp_path, [0] * 4, [0, 1, 2, 3], vocab=4) == "offsets, checked against t2d"


@pytest.mark.parametrize(
    ("d2t", "t2d", "message"),
    [
        (None, IDS, "has no d2t"),
        (IDS, IDS, "direct map"),
        (IDS, None, "direct map"),
        ([0, 0, 0, 0], list(range(10)), "t2d marks 10 target ids"),
        (offsets(IDS), [1, 2, 5, 8], "not those of d2t"),
        ([1, 0, 3, 6], None, "Non-decreasing"),
        ([-1, 0, 0, 0], None, "not a list of offsets"),
        ([1, 1, 3, 9], None, r"0\.\.9"),
        ([1, 1, 3], IDS, r"d2t is I64 \[3\]"),
        ([1, 1, 3, MOST], None, "it holds 9223372036854775807"),  # plus 3 it is negative
        ([1, MOST, -MOST - 1, 6], None, "it holds 9223372036854775807"),  # a step of 1, by overflow
    ],
    ids=str,
)
def test_maps_that_lie(
    tmp_path: Path, d2t: list[int] | None, t2d: list[int] | None, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        check(tmp_path, d2t, t2d)


def test_a_draft_vocabulary_larger_than_the_targets(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="draft_vocab_size=11"):
        check(tmp_path, None, None, size=11)


def test_a_direct_map_that_rises_by_overflow(tmp_path: Path) -> None:
    check(tmp_path, IDS, None, meaning="direct")
    with pytest.raises(CheckpointError, match="it holds 9223372036854775807"):
        check(tmp_path, [1, MOST, -MOST - 1, 9], None, meaning="direct")
