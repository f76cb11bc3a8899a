"""Room for captured features, and the check that no forward runs without it."""

from __future__ import annotations

from torch import Tensor

from specbench.engine.models.base import Features
from specbench.errors import EngineError


def new_features(capture: tuple[int, ...], rows: int, width: int, like: Tensor) -> Features | None:
    """Room for ``rows`` rows of the residual streams ``capture``; None when that is empty."""
    if not capture:
        return None
    tensor = like.new_zeros(rows, len(capture) * width)
    parts = {k: tensor[:, j * width : (j + 1) * width] for j, k in enumerate(capture)}
    return Features(tensor, parts)


def checked_features(
    features: Features | None, capture: tuple[int, ...], rows: int, width: int
) -> None:
    """Hold the room for features against what is captured.

    Raises:
        EngineError: names both widths.
    """
    found = None if features is None else tuple(features.tensor.shape)
    layers = capture if features is None else tuple(features.parts)
    expected = (rows, len(layers) * width) if layers else None
    if found != expected:
        raise EngineError(
            f"features of shape {found} for captured layers {list(layers)}.",
            expected=f"{expected}: {len(layers)} layers of width {width}; a wrapper that drops "
            "its inner model's features cannot be run.",
        )
