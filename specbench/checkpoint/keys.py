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
from specbench.errors import CheckpointError, UnsupportedError
from specbench.estimate import Caveat, Severity
from specbench.modelspec import AttentionSpec, DraftSpec, LayerShape

FLOATS = ("F64", "F32", "F16", "BF16")
MOST_TOLD = 8  # names in one message
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
        """A boolean; absent or null means ``default``, as in the library that wrote the file."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CheckpointError(
                f"{self.source}: {name}={shown(value)}.", expected="true or false."
            )
        return value

    def must_be(self, name: str, *allowed: Any) -> None:
        """Refuse a key that is present, and not null, with a value other than those supported."""
        value = self.raw(name)
        if value is not None and value not in allowed:
            raise UnsupportedError(
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
                f"{shown(key)} (did you mean {near[0]!r}?)"
                if (near := difflib.get_close_matches(key[:64], known, n=1))
                else shown(key)
                for key in unknown[:MOST_TOLD]
            ]
            more = len(unknown) - len(hints)
            raise UnsupportedError(
                f"{self.source} holds unknown keys: {', '.join(hints)}"
                f"{f' and {more} more' if more else ''}.",
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


def attention_extras(
    at: str, shape: LayerShape, attention: AttentionSpec | DraftSpec
) -> dict[str, tuple[int, ...]]:
    """Biases and head norms of one layer's attention ``at``, where ``attention`` has them."""
    wanted: dict[str, tuple[int, ...]] = {}
    if attention.qkv_bias:
        for name, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            wanted[f"{at}.{name}_proj.bias"] = (heads * shape.head_dim,)
    if attention.out_bias:
        wanted[f"{at}.o_proj.bias"] = (shape.hidden,)
    if attention.head_norm:
        wanted |= {f"{at}.{name}_norm.weight": (shape.head_dim,) for name in "qk"}
    return wanted


def dtype_name(tensors: Mapping[str, TensorEntry], name: str) -> str:
    """The dtype of a tensor in torch's spelling."""
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    return names[tensors[name].dtype]
