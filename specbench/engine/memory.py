"""Slots and rotations of a pair: allocated once, shared by all points of a grid."""

from __future__ import annotations

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.kv_cache import KVPool
from specbench.engine.models.draft_latent import LatentRope
from specbench.engine.models.layers import Rope
from specbench.engine.pair import ModelPair
from specbench.modelspec import LatentShape, LayerShape, RopeSpec, TargetSpec

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
        draft = None if pair.draft is None else pair.draft.spec
        target = self._of_target(pair.target.spec, capacity)
        own: tuple[KVPool | None, Rope | None] = (None, None)
        if draft is not None:
            own = self._of(draft.n_layers, draft.shape, draft.rope, capacity, draft.latent)
        # Assigned together: a failed allocation must not leave a pair with half of its caches.
        self.target, self.target_rope = target
        self.draft, self.draft_rope = own

    @property
    def _lanes(self) -> int:
        """With prefix reuse, one more than can run: lanes change places through it."""
        return self._config.max_batch_size + self._config.prefix_reuse

    def _of_target(self, spec: TargetSpec, capacity: int) -> tuple[KVPool, Rope]:
        pair = self._pair
        kv_heads, key_dim, value_dim = spec.cache_shape
        pool = KVPool(
            layers=spec.n_layers,
            lanes=self._lanes,
            kv_heads=kv_heads,
            head_dim=key_dim,
            value_dim=value_dim,
            capacity=capacity,
            dtype=pair.dtype,
            device=pair.device,
        )
        return pool, Rope(spec.rope, spec.shape.head_dim, capacity, pair.dtype, pair.device)

    def _of(
        self,
        layers: int,
        shape: LayerShape,
        rope: RopeSpec,
        capacity: int,
        latent: LatentShape | None = None,
    ) -> tuple[KVPool, Rope]:
        pair = self._pair
        pool = KVPool(
            layers=layers,
            lanes=self._lanes,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            capacity=capacity,
            dtype=pair.dtype,
            device=pair.device,
        )
        if latent is not None:
            return pool, LatentRope(rope, latent, capacity, pair.dtype, pair.device)
        return pool, Rope(rope, shape.head_dim, capacity, pair.dtype, pair.device)


def capacity_for(max_len: int, spec: SpecConfig) -> int:
    """Slots of a lane: the longest sequence, and the speculative rows that may follow it."""
    room = max(spec.num_draft_tokens, (spec.num_steps - 1) * spec.topk, spec.num_steps + 1)
    return -(-(max_len + room) // SLOT_BLOCK) * SLOT_BLOCK
