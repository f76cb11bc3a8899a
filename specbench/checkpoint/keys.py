"""Strict reading of a config table: every key is used, known to be harmless, or an error."""

from __future__ import annotations

import difflib
import reprlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specbench.checkpoint.headers import TensorEntry
from specbench.checkpoint.plain_keys import HARMLESS, check_plain
from specbench.errors import CheckpointError
from specbench.estimate import Caveat, Severity
from specbench.modelspec import LayerShape, RopeSpec

FLOATS = ("F64", "F32", "F16", "BF16")
MOST = 2**40  # no size of a model is larger; sums and products of such stay printable


def shown(value: Any) -> str:
    """A value from a file, short enough for a message."""
    return reprlib.repr(value)


class Keys:
    """One config table and which of its keys were read."""

    def __init__(self, table: Mapping[str, Any], source: Path | str) -> None:
        self._table = table
        self._read: set[str] = set()
        self.source = str(source)
        self.caveats: list[Caveat] = []

    def has(self, name: str) -> bool:
        """True when the key is there, even if it is null."""
        return name in self._table

    def raw(self, name: str, default: Any = None) -> Any:
        """The value as it is, or ``default``; marks the key as read."""
        self._read.add(name)
        return self._table.get(name, default)

    def integer(self, name: str, default: int | None = None) -> int:
        """A positive integer; without it the default is taken and noted."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
            raise CheckpointError(
                f"{self.source}: {name}={shown(value)}.", expected="A positive integer below 2^40."
            )
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number; without it the default is taken and noted."""
        value = self._value(name, default)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not 0 < value <= sys.float_info.max
        ):
            raise CheckpointError(
                f"{self.source}: {name}={shown(value)}.", expected="A positive number."
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean; absent means ``default``, as in the library that wrote the file."""
        value = self.raw(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(
                f"{self.source}: {name}={shown(value)}.", expected="true or false."
            )
        return value

    def must_be(self, name: str, *allowed: Any) -> None:
        """Refuse a key that is present with a value other than those supported."""
        value = self.raw(name, allowed[0])
        if value not in allowed:
            raise CheckpointError(
                f"{self.source}: {name}={shown(value)} is not supported.",
                expected=f"{' or '.join(map(repr, allowed))}.",
            )

    def note(self, code: str, text: str) -> None:
        """Record a default that was taken."""
        self.caveats.append(Caveat(code=code, severity=Severity.NOTE, text=text))

    def warn(self, code: str, text: str) -> None:
        """Record what may change the figures."""
        self.caveats.append(Caveat(code=code, severity=Severity.WARNING, text=text))

    def done(self) -> None:
        """Raise if a key was neither read nor harmless, or a harmless one is of a wrong kind."""
        check_plain(self._table, self.source)
        unknown = sorted(set(self._table) - self._read - HARMLESS)
        if unknown:
            known = self._read | HARMLESS
            hints = [
                f"{key!r} (did you mean {near[0]!r}?)"
                if (near := difflib.get_close_matches(key, known, n=1))
                else repr(key)
                for key in unknown
            ]
            raise CheckpointError(
                f"{self.source} holds unknown keys: {', '.join(hints[:8])}.",
                expected="Only keys whose meaning is known; an ignored one could change the model.",
                todo="Remove the key, or ask for its support.",
            )

    def _value(self, name: str, default: Any) -> Any:
        value = self.raw(name)
        if value is not None:
            return value
        if default is None:
            raise CheckpointError(f"{self.source}: key {name!r} is missing.")
        self.note("config_default", f"{self.source}: {name} is absent, {default} is taken")
        return default


def rope(keys: Keys) -> RopeSpec:
    """Plain rotary embedding, from either spelling (rope_theta, or rope_parameters).

    Raises:
        CheckpointError: a rope scaling that is not supported.
    """
    nested = keys.raw("rope_parameters")
    for name, table in (("rope_scaling", keys.raw("rope_scaling")), ("rope_parameters", nested)):
        kind = _rope_kind(keys, name, table)
        if kind != "default":
            raise CheckpointError(
                f"{keys.source}: {name} asks for {kind!r} scaling.", expected="Plain rope."
            )
    top = keys.raw("rope_theta")
    inner = nested.get("rope_theta") if isinstance(nested, Mapping) else None
    if top is not None and inner is not None and top != inner:
        raise CheckpointError(
            f"{keys.source}: rope_theta={top} and rope_parameters.rope_theta={inner} differ."
        )
    if top is None and inner is not None:
        theta = Keys(nested, f"{keys.source}: rope_parameters").number("rope_theta")
    else:
        theta = keys.number("rope_theta", 10000.0)
    return RopeSpec(theta=theta, max_position=keys.integer("max_position_embeddings", 2048))


def _rope_kind(keys: Keys, name: str, table: Any) -> str:
    if table is None:
        return "default"
    if not isinstance(table, Mapping):
        raise CheckpointError(f"{keys.source}: {name}={table!r}.", expected="A table or null.")
    extra = sorted(set(table) - {"rope_type", "type", "rope_theta"})
    kind = str(table.get("rope_type", table.get("type", "default")))
    return f"{kind} with {', '.join(extra)}" if extra else kind


def check_tensors(
    source: Path,
    tensors: Mapping[str, TensorEntry],
    expected: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...]],
) -> None:
    """Compare names and shapes of a file with what the config asks for; floats only.

    Raises:
        CheckpointError: lists what is missing, unknown, and mis-shaped with both shapes.
    """
    allowed = {**optional, **expected}
    missing = sorted(set(expected) - set(tensors))
    unknown = sorted(set(tensors) - set(allowed))
    shapes = [
        f"{name} is {list(tensors[name].shape)}, not {list(shape)}"
        for name, shape in sorted(allowed.items())
        if name in tensors and tensors[name].shape != shape
    ]
    kinds = [
        f"{name} is {entry.dtype}"
        for name, entry in sorted(tensors.items())
        if name in allowed and entry.dtype not in FLOATS
    ]
    problems = [
        f"{what}: {', '.join(items[:8])}{f' and {len(items) - 8} more' if len(items) > 8 else ''}"
        for what, items in (
            ("missing", missing),
            ("unknown", unknown),
            ("wrong shape", shapes),
            ("not floating point", kinds),
        )
        if items
    ]
    if problems:
        raise CheckpointError(
            f"{source} does not hold the tensors that its config.json describes. "
            f"{'; '.join(problems)}.",
            todo="Check that config.json and weights belong together.",
        )


def layer_tensors(prefix: str, shape: LayerShape, attention_in: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of one Llama layer whose attention reads ``attention_in`` values."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        f"{prefix}.self_attn.q_proj.weight": (q, attention_in),
        f"{prefix}.self_attn.k_proj.weight": (kv, attention_in),
        f"{prefix}.self_attn.v_proj.weight": (kv, attention_in),
        f"{prefix}.self_attn.o_proj.weight": (shape.hidden, q),
        f"{prefix}.input_layernorm.weight": (shape.hidden,),
        f"{prefix}.post_attention_layernorm.weight": (shape.hidden,),
        f"{prefix}.mlp.gate_proj.weight": (shape.inner, shape.hidden),
        f"{prefix}.mlp.up_proj.weight": (shape.inner, shape.hidden),
        f"{prefix}.mlp.down_proj.weight": (shape.hidden, shape.inner),
    }


def dtype_name(tensors: Mapping[str, TensorEntry], name: str) -> str:
    """The dtype of a tensor in torch's spelling."""
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    return names[tensors[name].dtype]
