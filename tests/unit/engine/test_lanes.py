"""Lanes that break in the middle of a batch leave nothing behind, whoever moves then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.batch import Batch
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode
from specbench.engine.kv_cache import KVPool
from specbench.engine.runner import Scores
from specbench.engine.tree import Tree
from specbench.trace import Finish
from tests.drive import drive, new_engine, new_request, prompts

CHAIN = SpecConfig.chain(2)
TREE = SpecConfig(num_steps=3, topk=4, num_draft_tokens=8)
NAN = float("nan")


def break_lanes(engine: Engine, broken: Mapping[int, Sequence[int]]) -> None:
    """In the verify step of each number, every value of these lanes' nodes is NaN."""
    whole, count = engine.runner.verify, iter(range(1, 1000))

    def verify(batch: Batch, tree: Tree) -> Scores:
        scores, nodes = whole(batch, tree), tree.tokens.shape[1]
        for lane in broken.get(next(count), ()):
            start, rows = batch.starts[lane], slice(lane * nodes, (lane + 1) * nodes)
            for cache in (engine.memory.target.keys, engine.memory.target.values):
                cache[:, lane, :, start : start + nodes] = NAN
            scores.logits[rows], scores.features[rows] = NAN, NAN
        return scores

    engine.runner.verify = verify  # type: ignore[method-assign]


def sound(pool: KVPool | None) -> bool:
    assert pool is not None
    return bool(pool.keys.isfinite().all() and pool.values.isfinite().all())


@pytest.mark.parametrize("mode", [GraphMode.EAGER, GraphMode.EMULATED], ids=lambda m: m.value)
@pytest.mark.parametrize("reuse", [False, True], ids=["cold", "reuse"])
@pytest.mark.parametrize("spec", [CHAIN, TREE], ids=lambda s: s.point_id)
@pytest.mark.parametrize("broken", [(3,), (1, 3), (0, 2)], ids=str)
def test_whoever_breaks_together_the_next_on_their_lanes_are_right(
    spec: SpecConfig, broken: tuple[int, ...], reuse: bool, mode: GraphMode
) -> None:
    """A lane that breaks may be the one that a gap in front of it is filled from."""
    first = new_engine(max_batch_size=4, max_len=128, prefix_reuse=reuse)
    engine = Engine(first.pair, first.config, mode)
    asked = [new_request(f"r{i}", prompt, 30) for i, prompt in enumerate(prompts(4)[::-1])]
    engine.configure(spec, 4)
    expected = [(o.ids, [s.ranks for s in o.steps]) for o in drive(engine, asked)]
    engine.configure(spec, 4)
    break_lanes(engine, {3: broken})
    outcomes = drive(engine, asked)
    ended = [outcome.finish for outcome in outcomes]
    assert ended == [Finish.ERROR if i in broken else Finish.LENGTH for i in range(4)]
    for i in {*range(4)} - {*broken}:
        assert outcomes[i].ids == expected[i][0]
    assert sound(engine.memory.target)
    assert sound(engine.memory.draft)
    assert [(o.ids, [s.ranks for s in o.steps]) for o in drive(engine, asked)] == expected


def test_one_that_ends_moves_nothing_broken_into_its_place() -> None:
    engine = new_engine(max_batch_size=2, max_len=128)
    engine.configure(SpecConfig.baseline(), 2)
    break_lanes(engine, {3: (1,)})
    asked = [new_request(f"r{i}", prompt, 4) for i, prompt in enumerate(prompts(2))]
    assert [o.finish for o in drive(engine, asked)] == [Finish.LENGTH, Finish.ERROR]
    assert sound(engine.memory.target)


def test_what_is_wiped_has_no_state_left() -> None:
    """A padding row of a captured graph drafts from the state of its lane, whoever held it."""
    engine = new_engine(max_batch_size=2, max_len=128)
    engine.configure(TREE, 2)
    kept: list[Tensor] = [engine.drafter._state, engine.drafter._scores]  # type: ignore[attr-defined]
    for state in kept:
        state[1] = NAN
    engine.drafter.clear(1)
    assert all(bool(state.isfinite().all()) for state in kept)
