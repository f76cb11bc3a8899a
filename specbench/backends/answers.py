"""JSON that a server sent, taken apart with errors that show what it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specbench.errors import BackendError


def decode_json(payload: bytes) -> Any:
    """``payload`` as JSON.

    Raises:
        BackendError: it is no UTF-8 or no JSON; the beginning is shown.
    """
    try:
        return json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise BackendError(
            f"The server sent something that is no JSON ({error}): {payload[:120]!r}."
        ) from None


def decode_event(payload: bytes) -> dict[str, Any]:
    """The JSON object of one stream event.

    Raises:
        BackendError: it is none, or it is the server's report that the request failed.
    """
    data = decode_json(payload)
    if not isinstance(data, dict):
        raise BackendError(f"The server sent {payload[:120]!r}.", expected="A JSON object.")
    if data.get("error"):
        raise BackendError(f"The server failed the request: {error_message(data)}")
    return data


def table_in(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``; empty where it is absent or null.

    Raises:
        BackendError: something else is there.
    """
    value = table.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BackendError(f"The server's {name} is {value!r:.120}.", expected="An object.")
    return value


def first_table(values: Any) -> Mapping[str, Any]:
    """The first object of a list.

    Raises:
        BackendError: there is none.
    """
    if not isinstance(values, list) or not values or not isinstance(values[0], Mapping):
        raise BackendError(f"The server sent {values!r:.120}.", expected="A list of objects.")
    return values[0]


def error_message(parsed: Any) -> str | None:
    """The message of an error object as OpenAI, vLLM, SGLang or FastAPI write it; None if none.

    >>> error_message({"error": {"message": "too long"}}), error_message({"detail": "no"})
    ('too long', 'no')
    """
    if not isinstance(parsed, dict):
        return None
    for key in ("error", "message", "detail"):
        value = parsed.get(key)
        if isinstance(value, dict):
            value = value.get("message") or json.dumps(value)
        if value:
            return value if isinstance(value, str) else json.dumps(value)
    return None
