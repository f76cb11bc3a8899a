"""What the engine asks of a model, and the tensors that travel between them.

Shapes: B sequences (lanes), T rows of each in one forward, R = B·T, H hidden, L columns of
key/value cache that a forward may look at, n layers, A captured features.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class RowKind(enum.Enum):
    """What the vectors given to a draft row are (engine-spec 2.2): never guessed from a width."""

    TARGET_FEATURES = "target_features"
    RECURRENT = "recurrent"


@dataclass(slots=True, kw_only=True)
class Span:
    """Where the rows of one forward stand, where their keys go, and what they may see.

    ``turn_q`` [T, 1, 1, D/2] or [B, T, 1, 1, D/2] and ``turn_k`` [R, 1, D/2] rotate; ``keys``
    [B·Hkv, D, L] and ``values`` [B·Hkv, L, D] are views of the cache by layer; ``mask``
    [B, 1, T, L] is added to the scores, None when every row sees all L columns. New keys and
    values go either to ``key_slots`` / ``value_slots`` (views by layer [T, Hkv, D], one lane) or
    to the rows ``slots`` [R, Hkv] of ``flat_keys`` / ``flat_values``. ``positions`` [B, T] are
    those of the rows, the first of a lane standing at its committed length; given to targets that
    are ``windowed``.
    """

    turn_q: Tensor
    turn_k: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    mask: Tensor | None
    key_slots: tuple[Tensor, ...] = ()
    value_slots: tuple[Tensor, ...] = ()
    slots: Tensor | None = None
    positions: Tensor | None = None
    flat_keys: tuple[Tensor, ...] = ()
    flat_values: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Features:
    """Captured residual streams of R rows [R, A·H], with the part of each layer as a view."""

    tensor: Tensor
    parts: Mapping[int, Tensor]


class Target(Protocol):
    """A target model whose residual stream can be captured (engine-spec 3.7)."""

    @property
    def capture(self) -> tuple[int, ...]:
        """Physical indices whose residual stream is handed to the draft, ascending."""
        ...

    @property
    def windowed(self) -> bool:
        """Whether some layer has a sliding window, and so needs positions."""
        ...

    def new_features(self, rows: int) -> Features | None:
        """Room for the features of ``rows`` rows; None when nothing is captured."""
        ...

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        """Residual stream after the last layer [R, H]; fills ``features``, un-normed."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary [rows, V] of un-normed final states [rows, H]."""
        ...
