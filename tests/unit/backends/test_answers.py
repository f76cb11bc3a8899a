from __future__ import annotations

import pytest

from specbench.backends.answers import (
    decode_event,
    decode_json,
    error_message,
    first_table,
    table_in,
)
from specbench.errors import BackendError


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"[" * 100_000])
def test_no_json(raw: bytes) -> None:
    with pytest.raises(BackendError, match="no JSON"):
        decode_json(raw)


@pytest.mark.parametrize(
    ("parsed", "expected"),
    [
        ({"error": {"message": "too long", "code": 400}}, "too long"),
        ({"error": "plain"}, "plain"),
        ({"object": "error", "message": "older vLLM"}, "older vLLM"),
        ({"detail": [{"loc": ["body"]}]}, '[{"loc": ["body"]}]'),
        ({"error": {"code": 7}}, '{"code": 7}'),
        ({}, None),
        ([1], None),
    ],
)
def test_error_messages_of_every_shape(parsed: object, expected: str | None) -> None:
    assert error_message(parsed) == expected


def test_an_error_event_is_raised() -> None:
    with pytest.raises(BackendError, match="engine died"):
        decode_event(b'{"error": {"message": "engine died"}}')
    with pytest.raises(BackendError, match="JSON object"):
        decode_event(b"[1]")
    assert decode_event(b'{"a": 1, "error": null}') == {"a": 1, "error": None}


def test_nested_objects() -> None:
    assert table_in({"a": {"b": 1}}, "a") == {"b": 1}
    assert table_in({"a": None}, "a") == {}
    assert table_in({}, "a") == {}
    with pytest.raises(BackendError, match="'no'"):
        table_in({"a": "no"}, "a")
    assert first_table([{"x": 1}]) == {"x": 1}


@pytest.mark.parametrize("wrong", [[], [1], "abc", {}, None])
def test_a_list_without_a_first_object(wrong: object) -> None:
    with pytest.raises(BackendError, match="list of objects"):
        first_table(wrong)
