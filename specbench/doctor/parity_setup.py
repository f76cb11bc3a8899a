"""How a parity probe gets its engines: a setup says what differs, a builder makes it.

The builder is the one place where a fault can be put in: it hands out an engine that is configured
and, when asked to, made wrong afterwards. Both ways of a probe come from the same builder, so a
probe sees only what differs between its two ways, never how the draft is wired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode
from specbench.engine.pair import ModelPair

CHAIN = SpecConfig.chain(3)
TREE = SpecConfig(num_steps=4, topk=2, num_draft_tokens=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What one way of a probe asks of its engine; ``prefill_chunk`` None reads a prompt whole."""

    spec: SpecConfig
    max_len: int
    batch_size: int = 1
    prefill_chunk: int | None = None
    prefix_reuse: bool = False
    replayed: bool = False


Build = Callable[[Setup], Engine]


def engines(
    pair: ModelPair, *, change: Callable[[Engine], None] | None = None, dtype: str = "float32"
) -> Build:
    """A builder of engines on one loaded pair.

    Args:
        pair: loaded models, shared by all engines.
        change: called on every engine that drafts, after it was configured. ``engine.graph_mode``,
            ``engine.config`` and ``engine.spec`` say which way it is.
        dtype: as the pair was loaded.
    """
    on_device = pair.device.type == "cuda"

    def build(setup: Setup) -> Engine:
        config = EngineConfig(
            device=str(pair.device),
            dtype=dtype,
            max_batch_size=setup.batch_size,
            max_len=setup.max_len,
            prefill_chunk=setup.prefill_chunk or setup.max_len,
            prefix_reuse=setup.prefix_reuse,
            kernels="torch",
        )
        replayed = GraphMode.CAPTURED if on_device else GraphMode.EMULATED
        engine = Engine(pair, config, replayed if setup.replayed else GraphMode.EAGER)
        engine.configure(setup.spec, setup.batch_size)
        if change is not None and not setup.spec.is_baseline:
            change(engine)
        return engine

    return build
