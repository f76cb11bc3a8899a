"""The records are frozen and derive nothing but widths."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from specbench.checkpoint import read_draft, read_target
from specbench.modelspec import RopeScaling, as_record
from tests.tiny import shared_pair


def test_records_are_frozen_plain_data() -> None:
    target, _ = read_target(shared_pair().target)
    draft, _ = read_draft(shared_pair().draft, target)
    assert draft.feature_width == draft.n_features * draft.target_hidden
    for record in (target, draft):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.vocab = 1  # type: ignore[misc]
        plain = dataclasses.asdict(record)
        assert isinstance(plain["shape"], dict)
        assert isinstance(plain["rope"], dict)


def test_a_record_is_what_json_holds_without_the_caveats() -> None:
    target, _ = read_target(shared_pair().target)
    draft, _ = read_draft(shared_pair().draft, target)
    for spec in (target, draft):
        record = as_record(spec)
        assert "caveats" not in record
        assert set(record) == {f.name for f in dataclasses.fields(spec)} - {"caveats"}
        assert json.loads(json.dumps(record))["shape"]["hidden"] == spec.shape.hidden


def test_how_far_a_draft_reaches() -> None:
    draft, _ = read_draft(shared_pair().draft, read_target(shared_pair().target)[0])
    assert draft.longest == draft.rope.max_position
    assert dataclasses.replace(draft, context_limit=100).longest == 100
    assert dataclasses.replace(draft, context_limit=10**9).longest == draft.rope.max_position


@pytest.mark.parametrize("name", ["qkv_bias", "out_bias", "head_norm", "fc_bias", "last_hidden"])
def test_what_takes_the_general_forward(name: str) -> None:
    draft, _ = read_draft(shared_pair().draft, read_target(shared_pair().target)[0])
    assert not draft.stacked
    change: Any = {name: True}
    assert dataclasses.replace(draft, **change).stacked


def test_a_scaling_says_what_it_does() -> None:
    scaling = RopeScaling(kind="yarn", factor=16.0, original=4096)
    assert str(scaling) == "yarn by 16 from 4096 positions"
