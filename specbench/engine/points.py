"""Which points of speculation an engine can run."""

from __future__ import annotations

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.pair import ModelPair
from specbench.errors import ConfigError


def check_point(pair: ModelPair, config: EngineConfig, spec: SpecConfig, batch_size: int) -> None:
    """Hold ``spec`` and the number of sequences together against models and settings.

    Raises:
        ConfigError: there is no draft, or it is too small for topk, the batch exceeds
            max_batch_size, or a tree is asked for where only chains can be verified.
    """
    if not 1 <= batch_size <= config.max_batch_size:
        raise ConfigError(
            f"batch_size={batch_size} with max_batch_size={config.max_batch_size}.",
            todo="Raise max_batch_size, or lower the batch size.",
        )
    if not spec.is_baseline and pair.draft is None:
        raise ConfigError(f"num_steps={spec.num_steps} needs a draft.", todo="Give --draft.")
    known = pair.draft_spec.draft_vocab if pair.draft_spec else spec.topk
    if spec.topk > known:
        raise ConfigError(
            f"topk={spec.topk} exceeds the draft's vocabulary of {known}.",
            todo=f"Set topk to at most {known}.",
        )
    config.rules.check(spec.topk)
