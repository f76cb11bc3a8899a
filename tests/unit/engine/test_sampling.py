"""Filters against their definitions."""

from __future__ import annotations

import torch

from specbench.engine.sampling import draw, filtered_probs
from specbench.request import SamplingParams

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
    assert filtered(top_p=0.0) == [1.0, 0.0, 0.0, 0.0]


def test_min_p_keeps_what_is_near_the_best() -> None:
    assert filtered(min_p=0.5) == [round(4 / 9, 6), round(3 / 9, 6), round(2 / 9, 6), 0.0]


def test_filters_apply_one_after_another() -> None:
    assert filtered(top_k=3, min_p=0.6) == [round(4 / 7, 6), round(3 / 7, 6), 0.0, 0.0]


def test_draw_follows_the_cumulated_mass() -> None:
    probs = torch.tensor([0.0, 0.5, 0.0, 0.25, 0.0])
    assert [draw(probs, coin) for coin in (0.0, 0.6, 0.67, 0.9999999)] == [1, 1, 3, 3]
