"""How a target and its draft are joined, as plain data: every wire that a checkpoint can claim.

The engine runs the wiring that the files claim; the probe can score a draft under any other
(engine-spec 0.3 and 10.4).
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

from specbench.modelspec import DraftSpec, RopeScaling


class Tap(enum.StrEnum):
    """What is taken at a physical index: the residual stream is right (engine-spec 3.1).

    ``MLP`` is the last MLP output without the residual, ``NORMED`` the stream after the norm in
    front of the next layer (after the final norm at n).
    """

    RESIDUAL = "residual"
    MLP = "mlp"
    NORMED = "normed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """One way to join the two models.

    ``slots`` are physical indices in the order of fc's input. ``pairing`` 0 joins token x[i+1]
    with feature g[i]; 1 joins it with g[i-1] (features a row late); -1 joins x[i] with g[i]
    (tokens not shifted). ``scale`` divides positions before rotation; ``scaling`` is any stretching
    of rotations that is no division. ``decode_shift`` is added to
    the positions of drafted rows (engine-spec 2.6). ``use_fc`` False feeds the target's last
    normed state straight in (2.2); ``token_first`` False swaps the halves of the attention input.
    ``adjacent`` rotates pairs that lie side by side in a head, not half a head apart.
    ``verify_slots`` are the layers of rows that a verify made, when a captured graph took others
    than the prefill (3.6).
    """

    slots: tuple[int, ...]
    theta: float
    tap: Tap = Tap.RESIDUAL
    pairing: int = 0
    scale: float = 1.0
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    direct_map: bool = False
    own_embedding: bool = False
    scaling: RopeScaling | None = None
    hidden_norm: bool = True
    use_fc: bool = True
    token_first: bool = True
    adjacent: bool = False
    decode_shift: int = 0
    verify_slots: tuple[int, ...] | None = None

    @classmethod
    def claimed(cls, spec: DraftSpec, *, own_embedding: bool) -> Wiring:
        """What the files of a draft claim."""
        scaling = spec.rope.scaling
        linear = scaling is not None and scaling.kind == "linear"
        return cls(
            slots=spec.capture_physical,
            theta=spec.rope.theta,
            scale=scaling.factor if scaling is not None and linear else 1.0,
            norm_before_residual=spec.norm_before_residual,
            norm_before_fc=spec.norm_before_fc,
            fc_norm=spec.fc_norm,
            norm_output=spec.norm_output,
            own_embedding=own_embedding,
            scaling=None if linear else scaling,
        )

    def changes(self, base: Wiring) -> dict[str, tuple[object, object]]:
        """Fields that differ from ``base``, each with (there, here)."""
        names = [field.name for field in dataclasses.fields(self)]
        pairs = {name: (getattr(base, name), getattr(self, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
