"""Filters against their definitions."""

from __future__ import annotations

import pytest
import torch

from specbench.engine.sampling import Filters, draw, draw_left
from specbench.engine.sampling import filtered as batched
from specbench.request import SamplingParams
from tests.toy import filtered_probs

PROBS = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)


def filtered(**sampling: float) -> list[float]:
    params = SamplingParams(**{"temperature": 1.0, **sampling})  # type: ignore[arg-type]
    return [round(p, 6) for p in filtered_probs(PROBS.log(), params)[0].tolist()]


def test_temperature_sharpens() -> None:
    squares = PROBS.square() / PROBS.square().sum()
    assert filtered(temperature=0.5) == [round(p, 6) for p in squares[0].tolist()]


def test_top_k_keeps_the_best() -> None:
    assert filtered(top_k=2) == [round(4 / 7, 6), round(3 / 7, 6), 0.0, 0.0]
    assert filtered(top_k=9) == [0.4, 0.3, 0.2, 0.1]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    assert filtered(top_p=0.65) == [round(4 / 7, 6), round(3 / 7, 6), 0.0, 0.0]
    assert filtered(top_p=0.3) == [1.0, 0.0, 0.0, 0.0]
    assert filtered(top_p=1e-9) == [1.0, 0.0, 0.0, 0.0]


def test_min_p_keeps_what_is_near_the_best() -> None:
    assert filtered(min_p=0.5) == [round(4 / 9, 6), round(3 / 9, 6), round(2 / 9, 6), 0.0]


def test_filters_apply_one_after_another() -> None:
    assert filtered(top_k=3, min_p=0.6) == [round(4 / 7, 6), round(3 / 7, 6), 0.0, 0.0]


def test_ties_go_to_the_lowest_id() -> None:
    flat = torch.zeros(1, 5, dtype=torch.float64)
    probs = filtered_probs(flat, SamplingParams(temperature=1.0, top_k=2))
    assert probs[0].tolist() == [0.5, 0.5, 0.0, 0.0, 0.0]
    probs = filtered_probs(flat, SamplingParams(temperature=1.0, top_p=0.5))
    assert [round(p, 6) for p in probs[0].tolist()] == [round(1 / 3, 6)] * 3 + [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-6])
def test_no_temperature_is_too_low(temperature: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[3.0, -80.0, 3.5, 100.0]]).to(dtype)
    probs = filtered_probs(logits, SamplingParams(temperature=temperature))
    assert probs.tolist() == [[0.0, 0.0, 0.0, 1.0]]


def test_lanes_keep_their_own_parameters_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, 50, generator=generator)
    asked = [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.5, top_k=4),
        SamplingParams(temperature=1.3, top_p=0.7),
        SamplingParams(temperature=0.8, min_p=0.2),
        SamplingParams(temperature=0.9, top_k=9, top_p=0.8, min_p=0.1),
        SamplingParams(temperature=2.0, top_k=1000),
    ]
    together = batched(logits, Filters.of(asked, logits))
    for lane, params in enumerate(asked):
        assert torch.equal(together[lane], filtered_probs(logits[lane], params))
    kept = (together > 0).sum(-1)
    assert kept[0].tolist() == kept[5].tolist() == [50] * 3
    assert kept[1].tolist() == [4] * 3
    assert int(kept[2].max()) < 50
    assert int(kept[3].max()) < 50


def test_draw_follows_the_cumulated_mass() -> None:
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.25, 0.0]]).expand(4, -1)
    coins = torch.tensor([0.0, 0.6, 0.67, 1 - 2**-53]).double()
    assert draw(weights, coins).tolist() == [1, 1, 3, 3]


def test_a_draw_never_takes_what_has_no_weight() -> None:
    """The coin next to 1 times a mass that rounds up is the whole mass."""
    weights = torch.tensor([[0.1] * 10 + [0.0]]).double()
    assert int(draw(weights, torch.tensor([1 - 2**-53]).double())[0]) == 9


def test_nothing_left_falls_back_to_the_target() -> None:
    left = torch.tensor([[0.0, 0.0], [0.0, 0.2]]).double()
    probs = torch.tensor([[1.0, 0.0], [0.8, 0.2]]).double()
    assert draw_left(left, probs, torch.tensor([0.3, 0.3]).double()).tolist() == [0, 1]
