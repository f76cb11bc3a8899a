"""A point that cannot be set up leaves the one before as it was."""

from __future__ import annotations

import pytest

from specbench.config import SpecConfig
from specbench.engine import engine as engine_module
from specbench.errors import ConfigError, EngineError
from tests.drive import drive, new_engine, new_request, prompts

TREE = SpecConfig(num_steps=3, topk=4, num_draft_tokens=8)
LARGER = SpecConfig(num_steps=5, topk=8, num_draft_tokens=200)


@pytest.mark.parametrize("part", ["TargetRunner", "Eagle3Drafter", "BatchInputs"])
def test_a_point_without_memory_leaves_the_one_before(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Its caches are larger, so those of the runner and of the drafter would have been apart."""
    engine = new_engine(max_batch_size=3, max_len=128)
    asked = [new_request(f"r{i}", prompt, 20) for i, prompt in enumerate(prompts(4))]
    engine.configure(TREE, 3)
    expected = [(o.ids, [s.ranks for s in o.steps]) for o in drive(engine, asked)]
    capacity = engine.memory.target.capacity
    whole, calls = getattr(engine_module, part), []

    def first_fails(*args: object, **named: object) -> object:
        calls.append(part)
        if len(calls) == 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return whole(*args, **named)

    monkeypatch.setattr(engine_module, part, first_fails)
    with pytest.raises(RuntimeError, match="allocate memory"):
        engine.configure(LARGER, 2)
    assert (engine.spec, engine.scheduler.batch_size) == (TREE, 3)
    assert engine.memory.target.capacity == capacity
    assert [(o.ids, [s.ranks for s in o.steps]) for o in drive(engine, asked)] == expected


def test_a_refused_point_changes_nothing() -> None:
    engine = new_engine(max_batch_size=2, max_len=128)
    engine.configure(TREE, 2)
    drafter = engine.drafter
    with pytest.raises(ConfigError, match="max_batch_size=2"):
        engine.configure(LARGER, 3)
    engine.submit(new_request("r", [1, 2]))
    with pytest.raises(EngineError, match="in flight"):
        engine.configure(LARGER, 2)
    assert (engine.spec, engine.drafter) == (TREE, drafter)
