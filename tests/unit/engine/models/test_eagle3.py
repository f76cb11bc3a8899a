"""The draft model's parts; whole drafts are compared with the reference in test_draft."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from specbench.config import SpecConfig
from specbench.engine.models import eagle3
from tests.drive import TREES, accept_length, drive, new_engine, new_request, prompts
from tests.tiny import TinyShape, write_pair


def test_d2t_holds_offsets() -> None:
    engine = new_engine()
    draft = engine.pair.draft
    assert draft is not None
    ids = draft.target_ids.tolist()
    assert len(ids) == 272
    assert ids == sorted(set(ids))
    assert ids[-1] <= 287


def test_without_the_table_the_draft_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [new_request(f"r{i}", p) for i, p in enumerate(prompts(3))]
    lengths = []
    for limit in (eagle3.MAX_TABLE_BYTES, 0):
        monkeypatch.setattr(eagle3, "MAX_TABLE_BYTES", limit)
        engine = new_engine()
        engine.configure(SpecConfig.chain(3), 1)
        lengths.append(accept_length(drive(engine, asked)))
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("spec", [SpecConfig.chain(4), TREES[3]], ids=lambda s: s.point_id)
def test_float16_files_keep_their_weights_and_their_tokens(
    tmp_path: Path, spec: SpecConfig
) -> None:
    """Packed float16 panels and plain float32 matrices of the same file agree."""
    pair = write_pair(tmp_path, stored=torch.float16)
    packed, wide = new_engine(pair, dtype="float32"), new_engine(pair)
    assert packed.pair.device_facts["weights"] == "float16 as stored"
    assert wide.pair.device_facts["weights"] == "float64"
    asked = [new_request(f"r{i}", p) for i, p in enumerate(prompts(3))]
    results = []
    for engine in (packed, wide):
        engine.configure(spec, 2)
        results.append([o.ids for o in drive(engine, asked)])
    assert results[0] == results[1]


def test_a_tied_target_and_odd_head_sizes_work(tmp_path: Path) -> None:
    shape = dataclasses.replace(TinyShape(), hidden=48, head_dim=20, tied=True)
    engine = new_engine(write_pair(tmp_path, shape, skilled=False))
    asked = [new_request("r", prompts(2)[1])]
    engine.configure(SpecConfig.baseline(), 1)
    plain = drive(engine, asked)[0].ids
    engine.configure(SpecConfig.chain(3), 1)
    assert drive(engine, asked)[0].ids == plain
