"""``run.json``: what a run was asked, and whether another run asks the same.

It holds ``schema`` (the version of the run directory), ``asked`` (the configuration), ``points``
(the spec of each by its id), ``derived`` (ids whose num_draft_tokens follows from num_steps),
``overrides`` (by point id, where an engine's rules changed what was asked), ``dropped`` (with
reasons), ``facts`` of the backend, ``provenance`` of the first start and ``resumed``, that of each
later one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specbench.errors import OutputError
from specbench.rows import dump, no_constant, plain

SCHEMA = 1
RUN_JSON = "run.json"
REQUIRED = ("asked", "points", "dropped", "provenance")
_TABLE, _LIST = (dict, "table"), (list, "list")
_KINDS = {
    **dict.fromkeys(("asked", "provenance", "facts"), _TABLE),
    **dict.fromkeys(("dropped", "resumed"), _LIST),
}


def make_run_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The content of ``run.json`` as plain JSON data; dataclasses, enums and tuples are made so.

    Raises:
        OutputError: a required key is missing.
        TypeError, ValueError: a value has no JSON form.
    """
    missing = [key for key in REQUIRED if key not in values]
    if missing:
        raise OutputError(f"run.json would lack {', '.join(missing)}.")
    content: dict[str, Any] = json.loads(dump({"schema": SCHEMA, **plain(values)}))
    return content


def run_text(content: Mapping[str, Any]) -> str:
    """The text of ``run.json``."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def read_run_json(path: Path) -> dict[str, Any]:
    """``run.json``, of a schema that this version reads.

    Raises:
        OutputError: it is missing, of another schema, or a part of it is of another kind.
    """
    file = path / RUN_JSON
    try:
        content: Any = json.loads(file.read_bytes(), parse_constant=no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(
            f"{file} cannot be read: {error}.",
            expected="The folder of a run, as `specbench sweep` writes it.",
        ) from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA or not content.keys() >= set(REQUIRED):
        newer = isinstance(schema, int) and schema > SCHEMA
        raise OutputError(
            f"{file} has schema {schema!r}.",
            expected=f"This version reads schema {SCHEMA}, with {', '.join(REQUIRED)}.",
            todo="Use the newer version that wrote it." if newer else "",
        )
    for key, (kind, name) in _KINDS.items():
        if key in content and not isinstance(content[key], kind):
            raise OutputError(
                f"{file}: {key}={content[key]!r} is a {type(content[key]).__name__}.",
                expected=f"A {name}, as `specbench sweep` wrote it.",
            )
    return dict(content)


def refuse_other_run(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raise unless both ask for the same work on the same inputs (those with a hash)."""
    found = [
        line for key in ("asked", "points") for line in differences(before[key], now[key], key)
    ]
    old, new = (each["provenance"].get("inputs", {}) for each in (before, now))
    hashes = [key for key in {**old, **new} if "sha256" in key]
    found += differences(
        {key: old.get(key) for key in hashes}, {key: new.get(key) for key in hashes}, "inputs"
    )
    if found:
        raise OutputError(
            f"the run in {path} was asked something else: {'; '.join(found)}.",
            expected="A run is resumed with the settings and inputs that it was begun with.",
            todo="Repeat the first settings, or choose another folder.",
        )


def differences(old: Any, new: Any, where: str) -> list[str]:
    """Where two JSON values differ, as ``path: old -> new``."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        return [
            line
            for key in keys
            for line in differences(old.get(key), new.get(key), f"{where}.{key}")
        ]
    return [] if old == new else [f"{where}: {dump(old)} -> {dump(new)}"]
