"""What a family says of itself, and how the parts that several families share are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from specbench.checkpoint.folder import Folder
from specbench.checkpoint.keys import Keys, shown
from specbench.checkpoint.layer_rules import UNQUANTISED, no_quantisation
from specbench.errors import CheckpointError, UnsupportedError
from specbench.modelspec import LLAMA_ATTENTION, AttentionSpec, ExpertSpec, LayerShape, RopeSpec

MOST_LAYERS, MOST_EXPERTS = 10_000, 4096
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one model. ``spare_layers`` behind the last are in the file and not run
    (multi-token prediction); ``aside`` are endings of tensor names that this forward needs not."""

    shape: LayerShape
    rope: RopeSpec
    attention: AttentionSpec = LLAMA_ATTENTION
    experts: ExpertSpec | None = None
    context_limit: int | None = None
    spare_layers: int = 0
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A name, the ``architectures`` it answers to, and its reader.

    ``unwrap`` turns the folder of a wrapper into that of its language model: its config, and
    tensors by the names that a bare model would have.
    """

    name: str
    architectures: tuple[str, ...]
    read: Callable[[Keys], Parts]
    unwrap: Callable[[Folder], tuple[Folder, tuple[str, ...]]] | None = None


def plain_weights(keys: Keys, todo: str = UNQUANTISED) -> None:
    """SwiGLU with silu, and no quantised weights.

    Raises:
        CheckpointError: the config asks for something else.
    """
    keys.must_be("hidden_act", "silu")
    no_quantisation(keys, todo)


def windows(keys: Keys, default: Callable[[int], bool]) -> tuple[int | None, ...]:
    """The sliding window of each layer, from layer_types, or by ``default(layer)`` without it.

    Raises:
        CheckpointError: kinds of layers that are not known, or sliding ones without a window.
    """
    layers, kinds = keys.integer("num_hidden_layers"), keys.raw("layer_types")
    window = keys.raw("sliding_window")
    if kinds is None:
        sliding = [default(i) for i in _countable(layers)] if window is not None else []
    elif (
        isinstance(kinds, list)
        and len(kinds) == layers
        and all(kind in (FULL, SLIDING) for kind in kinds)
    ):
        sliding = [kind == SLIDING for kind in kinds]
    else:
        raise UnsupportedError(
            f"{keys.source}: layer_types={shown(kinds)} is not supported.",
            expected=f"{FULL} or {SLIDING} for each of {layers} layers.",
        )
    if not any(sliding):
        return ()
    width = keys.integer("sliding_window")
    return tuple(width if yes else None for yes in sliding)


def expert_layers(keys: Keys, first_dense: int) -> tuple[int, ...]:
    """All layers behind the first ``first_dense``."""
    return tuple(_countable(keys.integer("num_hidden_layers")))[first_dense:]


def expert_count(keys: Keys) -> int:
    """The number of routed experts, under any of its three names; libraries rename it on saving.

    Raises:
        CheckpointError: none is there, or two differ.
    """
    names = ("n_routed_experts", "num_experts", "num_local_experts")
    given = {name: keys.integer(name) for name in names if keys.raw(name) is not None}
    if len(set(given.values())) != 1:
        raise CheckpointError(
            f"{keys.source}: the number of experts is {given or 'missing'}.",
            expected=f"One of {', '.join(names)}.",
        )
    return next(iter(given.values()))


def natural(keys: Keys, name: str, default: int = 0) -> int:
    """An integer of at least 0; absent or null means ``default``."""
    value: Any = keys.raw(name)
    if value is None or (type(value) is int and value == 0):
        return default if value is None else 0
    return keys.integer(name)


def without_experts(parts: Parts) -> Parts:
    """The same without experts where no layer has any."""
    empty = parts.experts is not None and not parts.experts.layers
    return replace(parts, experts=None) if empty else parts


def check_routing(keys: Keys, experts: ExpertSpec) -> None:
    """Counts that fit each other.

    Raises:
        CheckpointError: more experts chosen than there are to choose from, or uneven groups.
    """
    per_group = experts.count // experts.groups
    if experts.count > MOST_EXPERTS:
        raise CheckpointError(
            f"{keys.source}: {experts.count} experts.", expected=f"At most {MOST_EXPERTS}."
        )
    if (
        experts.count % experts.groups
        or experts.kept_groups > experts.groups
        or experts.active > experts.kept_groups * per_group
        or (experts.group_score == "top2" and experts.groups > 1 and per_group < 2)
    ):
        raise CheckpointError(
            f"{keys.source}: {experts.active} of {experts.count} experts in {experts.kept_groups} "
            f"of {experts.groups} groups.",
            expected="Equal groups that hold at least as many experts as are chosen.",
        )


def _countable(layers: int) -> range:
    """Layer numbers; a config that claims an absurd count is refused before anything is made."""
    if layers > MOST_LAYERS:
        raise CheckpointError(f"num_hidden_layers={layers}.", expected=f"At most {MOST_LAYERS}.")
    return range(layers)
