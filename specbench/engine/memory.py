"""Slots and rotations of a pair: allocated once, shared by all points of a grid."""

from __future__ import annotations

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.kv_cache import KVPool
from specbench.engine.models.layers import Rope
from specbench.engine.pair import ModelPair
from specbench.modelspec import LayerShape, RopeSpec

SLOT_BLOCK = 64


class Memory:
    """The caches of target and draft (same lanes, same slots) and their rotation tables."""

    def __init__(self, pair: ModelPair, config: EngineConfig) -> None:
        self._pair, self._config = pair, config
        self._allocate(capacity_for(config.max_len, SpecConfig.baseline()))

    def ensure(self, spec: SpecConfig) -> None:
        """Make room for the speculative slots of ``spec``; only while nothing runs."""
        capacity = capacity_for(self._config.max_len, spec)
        if capacity > self.target.capacity:
            self._allocate(capacity)

    def _allocate(self, capacity: int) -> None:
        pair = self._pair
        spec, draft = pair.target_spec, pair.draft_spec
        target = self._of(spec.n_layers, spec.shape, spec.rope, capacity)
        own: tuple[KVPool | None, Rope | None] = (None, None)
        if draft is not None:
            own = self._of(draft.n_layers, draft.shape, draft.rope, capacity)
        # Assigned together: a failed allocation must not leave a pair with half of its caches.
        self.target, self.target_rope = target
        self.draft, self.draft_rope = own

    def _of(
        self, layers: int, shape: LayerShape, rope: RopeSpec, capacity: int
    ) -> tuple[KVPool, Rope]:
        pair = self._pair
        pool = KVPool(
            layers=layers,
            lanes=self._config.max_batch_size,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            capacity=capacity,
            dtype=pair.dtype,
            device=pair.device,
        )
        return pool, Rope(rope, shape.head_dim, capacity, pair.dtype, pair.device)


def capacity_for(max_len: int, spec: SpecConfig) -> int:
    """Slots of a lane: the longest sequence, and the speculative rows that may follow it."""
    room = max(spec.num_draft_tokens, (spec.num_steps - 1) * spec.topk)
    return -(-(max_len + room) // SLOT_BLOCK) * SLOT_BLOCK
