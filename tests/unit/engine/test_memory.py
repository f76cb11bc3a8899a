"""Capacity follows the longest sequence and the speculative rows after it."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.config import SpecConfig
from specbench.engine.memory import Memory, capacity_for
from specbench.errors import ConfigError
from tests.drive import TREES, new_engine


def test_capacity_holds_the_speculative_rows() -> None:
    assert capacity_for(64, SpecConfig.baseline()) == 128
    assert capacity_for(63, SpecConfig.baseline()) == 64
    assert capacity_for(56, SpecConfig.chain(7)) == 64
    wide = SpecConfig(num_steps=5, topk=8, num_draft_tokens=4)
    assert capacity_for(32, wide) == 64
    assert capacity_for(33, wide) == 128


def test_pools_are_kept_between_points_and_grow_when_needed() -> None:
    engine = new_engine(max_len=56)
    memory = engine.memory
    first = memory.target
    assert first.capacity == 64
    engine.configure(SpecConfig.chain(7), 2)
    assert engine.memory.target is first
    engine.configure(TREES[5], 2)
    assert engine.memory.target.capacity == 128
    assert memory.draft is not None
    assert memory.draft.capacity == 128
    assert memory.target_rope.length == 128


def test_a_failed_allocation_leaves_the_engine_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine(max_len=56)
    engine.configure(SpecConfig.chain(7), 2)
    before = (engine.spec, engine.memory.target, engine.memory.draft)

    def fail_at_the_draft(self: Memory, *args: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Memory, "_of", fail_at_the_draft)
    with pytest.raises((MemoryError, ConfigError)):
        engine.configure(TREES[5], 2)
    assert (engine.spec, engine.memory.target, engine.memory.draft) == before
