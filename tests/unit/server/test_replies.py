from __future__ import annotations

import json

import pytest

from specbench.errors import (
    BackendError,
    ConfigError,
    EngineError,
    RequestError,
    SpecbenchError,
    UnreachableError,
)
from specbench.server.fields import RefusedError
from specbench.server.replies import body_of, event, json_reply, status_of


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ConfigError("a"), 400, "invalid_request_error"),
        (RefusedError("a", status=413), 413, "invalid_request_error"),
        (RequestError("a"), 400, "invalid_request_error"),
        (BackendError("a"), 500, "server_error"),
        (EngineError("a"), 500, "server_error"),
        (UnreachableError("a"), 502, "server_error"),
    ],
)
def test_whose_fault_an_error_is(error: SpecbenchError, status: int, kind: str) -> None:
    assert status_of(error) == status
    assert body_of(error)["error"]["type"] == kind


def test_openai_error_shape() -> None:
    error = RefusedError("No.", todo="Do.", param="p", code="c")
    expected = {"message": "No. Do.", "type": "invalid_request_error", "param": "p", "code": "c"}
    assert body_of(error) == {"error": expected}


def test_events_are_one_line_of_utf8() -> None:
    raw = event({"t": "é\n\r\u2028"})
    assert raw.startswith(b"data: ")
    assert raw.endswith(b"\n\n")
    assert b"\n" not in raw[:-2]
    assert b"\r" not in raw
    assert json.loads(raw[6:]) == {"t": "é\n\r\u2028"}


def test_a_json_reply() -> None:
    reply = json_reply({"a": 1}, status=409)
    assert (reply.status, reply.content_type, reply.text) == (409, "application/json", '{"a":1}')
