"""The records are frozen and derive nothing but widths."""

from __future__ import annotations

import dataclasses

import pytest

from specbench.checkpoint import read_draft, read_target
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
