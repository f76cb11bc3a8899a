"""Rotary embedding of a target or draft from its config, with its scaling (engine-spec 12.3).

Formulas are those of Hugging Face's ``modeling_rope_utils``; factors that follow from the config
alone are computed here, the frequencies in ``engine.models.rope``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from specbench.checkpoint.keys import Keys, shown
from specbench.errors import CheckpointError, UnsupportedError
from specbench.modelspec import RopeScaling, RopeSpec

PLAIN = ("default", None)


def read_rope(
    keys: Keys, dim: int, *, theta: float = 10000.0, part_of_head: bool = False
) -> RopeSpec:
    """Base, length and scaling, from either spelling (rope_theta and rope_scaling, or
    rope_parameters).

    Args:
        keys: the config.
        dim: rotated width of a head.
        theta: the family's base where the config names none.
        part_of_head: only ``dim`` values of a wider head are rotated.

    Raises:
        CheckpointError: two spellings that differ, or a scaling whose formula is not known.
    """
    length = keys.integer("max_position_embeddings", 2048)
    table = _table(keys)
    inner = Keys(table, f"{keys.source}: rope")
    for where in (keys, inner):
        where.must_be("partial_rotary_factor", 1.0)
    base = keys.raw("rope_theta")
    if base is not None and inner.raw("rope_theta") not in (None, base):
        raise CheckpointError(
            f"{keys.source}: rope_theta={shown(base)} and {shown(table['rope_theta'])} differ."
        )
    base = keys.number("rope_theta") if base is not None else inner.number("rope_theta", theta)
    kind = inner.raw("rope_type")
    old = inner.raw("type")
    if None not in (kind, old) and kind != old:
        raise CheckpointError(f"{inner.source}: rope_type={shown(kind)}, type={shown(old)}.")
    kind = kind if kind is not None else old
    if _multimodal(inner, kind):
        keys.note("mrope", f"{inner.source}: mrope; for text it is the plain rotation, taken here")
        kind = "default"
    spec = RopeSpec(theta=base, max_position=length, dim=dim if part_of_head else None)
    if kind not in PLAIN:
        if not isinstance(kind, str) or kind not in _SCALINGS:
            raise UnsupportedError(
                f"{inner.source}: scaling {shown(kind)} is not supported.",
                expected=f"default, {', '.join(_SCALINGS)}.",
                todo="A scaling that changes with the length of a sequence (dynamic, longrope) "
                "would rotate cached keys anew; serve the model within its trained length instead.",
            )
        scaling = _SCALINGS[kind](inner, length)
        if not part_of_head:  # only latent attention scales its scores by mscale as well
            scaling = replace(scaling, score_factor=1.0)
        spec = replace(spec, scaling=scaling)
    inner.done()
    keys.caveats.extend(inner.caveats)
    return spec


def _table(keys: Keys) -> Mapping[str, Any]:
    """The one table of rope settings; both spellings may be there if they agree."""
    found = [
        (name, value)
        for name in ("rope_parameters", "rope_scaling")
        if (value := keys.raw(name)) is not None
    ]
    for name, value in found:
        if not isinstance(value, Mapping):
            raise CheckpointError(
                f"{keys.source}: {name}={shown(value)}.", expected="A table or null."
            )
    if len(found) == 2 and found[0][1] != found[1][1]:
        raise CheckpointError(f"{keys.source}: rope_parameters and rope_scaling differ.")
    return found[0][1] if found else {}


def _multimodal(inner: Keys, kind: Any) -> bool:
    """Whether positions have three axes (Qwen-VL). On text all three are equal, so that whichever
    axis turns a pair, it turns by the plain angle."""
    sections = inner.raw("mrope_section")
    inner.raw("mrope_interleaved")
    return kind == "mrope" or (kind in PLAIN and sections is not None)


def _linear(keys: Keys, length: int) -> RopeScaling:
    return RopeScaling(kind="linear", factor=keys.number("factor"), original=length)


def _llama3(keys: Keys, length: int) -> RopeScaling:
    low, high = keys.number("low_freq_factor"), keys.number("high_freq_factor")
    if low >= high:
        raise CheckpointError(
            f"{keys.source}: low_freq_factor={low}, high_freq_factor={high}.",
            expected="The first below the second.",
        )
    return RopeScaling(
        kind="llama3",
        factor=keys.number("factor"),
        original=keys.integer("original_max_position_embeddings", length),
        low=low,
        high=high,
    )


def _yarn(keys: Keys, length: int) -> RopeScaling:
    factor, given = keys.number("factor"), keys.raw("attention_factor")
    scale, all_dim = _optional(keys, "mscale"), _optional(keys, "mscale_all_dim")
    if given is not None:
        attention = keys.number("attention_factor")
    elif scale and all_dim:
        attention = _mscale(factor, scale) / _mscale(factor, all_dim)
    else:
        attention = _mscale(factor, 1.0)
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original=keys.integer("original_max_position_embeddings", length),
        low=_optional(keys, "beta_slow") or 1.0,
        high=_optional(keys, "beta_fast") or 32.0,
        truncate=keys.flag("truncate", default=True),
        attention_factor=attention,
        score_factor=_mscale(factor, all_dim) ** 2 if all_dim else 1.0,
    )


def _optional(keys: Keys, name: str) -> float | None:
    """A positive number; absent, null and 0 all mean that it plays no part."""
    return None if keys.raw(name) in (None, 0) else keys.number(name)


def _mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


_SCALINGS: dict[str, Callable[[Keys, int], RopeScaling]] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
