"""Slots: both forms write and read the same, and masks hide what they must."""

from __future__ import annotations

import torch

from specbench.engine.kv_cache import KVPool, Tail, batch_mask, turn_at, turn_run
from specbench.engine.models.layers import Rope
from specbench.modelspec import RopeSpec

CPU = torch.device("cpu")


def pool(lanes: int = 3, dtype: torch.dtype = torch.float64) -> KVPool:
    return KVPool(
        layers=2, lanes=lanes, kv_heads=2, head_dim=4, capacity=16, dtype=dtype, device=CPU
    )


ROPE = Rope(RopeSpec(theta=100.0, max_position=16), 4, 16, torch.float64, CPU)


def test_both_forms_name_the_same_slots() -> None:
    single, batched = pool(), pool()
    values = torch.randn(3, 2, 4, dtype=torch.float64)
    one = single.one_lane(0, 5, 3, turn_run(ROPE, 5, 3))
    slots = torch.tensor([[5, 6, 7]])
    many = batched.batch(slots, 8, turn_at(ROPE, slots), None)
    assert many.slots is not None
    for layer in range(2):
        one.value_slots[layer].copy_(values)
        many.flat_values[layer].index_put_((many.slots,), values)
        assert torch.equal(one.values[layer], many.values[layer])
        assert torch.equal(one.turn_q, many.turn_q[0])
        assert torch.equal(one.turn_k, many.turn_k)
    assert torch.equal(single.values, batched.values)
    assert torch.equal(single.values[0, 0, :, 5:8].transpose(0, 1), values)


def test_keep_moves_a_tree_path_to_the_front() -> None:
    kept = pool()
    kept.values.copy_(torch.arange(16, dtype=torch.float64)[:, None].expand(16, 4))
    kept.keep(1, 4, (0, 1))
    assert kept.values[0, 1, 0, 4:8, 0].tolist() == [4, 5, 6, 7]
    kept.keep(1, 4, (0, 2, 5))
    assert kept.values[1, 1, 1, 4:8, 0].tolist() == [4, 6, 9, 7]
    assert kept.values[0, 0, 0, :, 0].tolist() == list(range(16))


def test_move_and_clear() -> None:
    moved = pool()
    moved.keys[:, 2] = 7.0
    moved.move(2, 0, 3)
    assert moved.keys[:, 0, :, :3].eq(7).all()
    assert moved.keys[:, 0, :, 3:].eq(0).all()
    moved.clear(2)
    assert moved.keys[:, 2].eq(0).all()


def test_batch_mask_sees_the_committed_prefix_and_the_tree() -> None:
    seen = torch.tensor([[[True, False], [True, True]]])
    mask = batch_mask(torch.tensor([1, 3]), seen, 6, torch.float64)
    visible = mask.eq(0).squeeze(1).int().tolist()
    assert visible == [
        [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]],
        [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]],
    ]


def test_the_tail_gives_the_same_mask_as_a_view() -> None:
    seen = torch.tensor([[True, False, False], [True, True, False]])
    tail = Tail(seen, 16, torch.float64)
    for start in (0, 4, 16):
        expected = batch_mask(torch.tensor([start]), seen[None], start + 3, torch.float64)
        assert torch.equal(tail.view(start, 3), expected[0, 0])
    tail.fill(~seen)
    assert tail.view(2, 2).eq(0).tolist() == [[True, True, False, True], [True, True, False, False]]
