"""Typed access to the values of a parsed record; a wrong type is an error that names the key."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Set
from typing import Any

from specbench.errors import WorkloadError


def check_keys(values: Mapping[str, Any], known: Set[str], what: str) -> None:
    """Refuse a key of ``values`` that ``what`` is not known to have.

    Raises:
        WorkloadError: names the key, and a known one that is near it.
    """
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            raise WorkloadError(
                f"the key {key!r} is unknown in {what}.",
                expected=f"Known: {', '.join(sorted(known))}.",
                todo=f"Did you mean {near[0]!r}?" if near else "Remove it if it does not matter.",
            )


def text(values: Mapping[str, Any], key: str, *, default: str | None = None) -> str:
    """The text at ``key``; ``default`` when it is absent or null."""
    value = values.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise WorkloadError(f"{key} {_seen(values, key)}.", expected="A text.")
    return value


def texts(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The list of texts at ``key``."""
    value = values.get(key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise WorkloadError(f"{key} {_seen(values, key)}.", expected="A list of texts.")
    return tuple(value)


def integer(values: Mapping[str, Any], key: str) -> int:
    """The whole number at ``key``."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise WorkloadError(f"{key} {_seen(values, key)}.", expected="A whole number.")
    return value


def number(values: Mapping[str, Any], key: str) -> float:
    """The number at ``key``."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WorkloadError(f"{key} {_seen(values, key)}.", expected="A number.")
    if not abs(value) <= sys.float_info.max:
        raise WorkloadError(f"{key} is out of range.", expected="A finite number.")
    return float(value)


def identity(values: Mapping[str, Any], key: str, fallback: str) -> str:
    """The id at ``key`` as text, ``fallback`` when there is none.

    ``#`` marks turns in request ids, so it is replaced by ``_``.
    """
    value = values.get(key)
    if value is None:
        return fallback
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise WorkloadError(f"{key}={value!r} is no id.", expected="A text or a whole number.")
    return str(value).replace("#", "_")


def _seen(values: Mapping[str, Any], key: str) -> str:
    if key not in values:
        return "is missing"
    if isinstance(values[key], list):
        return "is a list that holds something else"
    return f"is a {type(values[key]).__name__}"
