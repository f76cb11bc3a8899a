"""JSON bodies in, JSON errors and events out: the shapes that every route shares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

from specbench.errors import RequestError, SpecbenchError, UnreachableError, UsageError
from specbench.server.fields import RefusedError

MAX_BODY_BYTES = web.AppKey("max_body_bytes", int)
_ASKERS_FAULT = (UsageError, RequestError)
DONE = b"data: [DONE]\n\n"


async def read_body(request: web.Request) -> Any:
    """The parsed JSON body.

    Raises:
        RefusedError: it is not declared to be JSON (a page of another origin cannot declare that
            without asking first), or it is none.
    """
    if request.content_type != "application/json":
        raise RefusedError(
            f"The body is declared as {request.content_type}.",
            todo="Send Content-Type: application/json.",
            status=415,
        )
    raw = await request.read()
    try:
        body = json.loads(raw.decode(), parse_constant=_no_constant)
        if b"\\u" in raw:
            _dump(body).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"The body is no JSON: {error}.") from None
    return body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def event(data: Mapping[str, Any]) -> bytes:
    """``data`` as one server-sent event."""
    return b"data: " + _dump(data).encode() + b"\n\n"


def _dump(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


async def start_events(http: web.Request) -> web.StreamResponse:
    """Send status and headers of an event stream that no proxy may hold back."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
        }
    )
    await response.prepare(http)
    return response


def json_reply(data: Mapping[str, Any], *, status: int = 200) -> web.Response:
    """``data`` as a JSON answer."""
    return web.Response(text=_dump(data), status=status, content_type="application/json")


def error_body(
    message: str, *, kind: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def status_of(error: SpecbenchError) -> int:
    """The HTTP status of an error: the caller's fault, the server's, or one behind it."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, _ASKERS_FAULT):
        return 400
    return 502 if isinstance(error, UnreachableError) else 500


def body_of(error: SpecbenchError) -> dict[str, Any]:
    """The body of an error."""
    kind = "invalid_request_error" if isinstance(error, _ASKERS_FAULT) else "server_error"
    if isinstance(error, RefusedError):
        return error_body(str(error), kind=kind, param=error.param, code=error.code)
    return error_body(str(error), kind=kind)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error leaves in one shape, also those that the web framework raises."""
    try:
        return await handler(request)
    except SpecbenchError as error:
        return json_reply(body_of(error), status=status_of(error))
    except web.HTTPRequestEntityTooLarge as error:
        message = f"The body is larger than {request.app[MAX_BODY_BYTES]} bytes."
        return json_reply(error_body(message, kind="invalid_request_error"), status=error.status)
    except web.HTTPException as error:
        message = f"{request.method} {request.path}: {error.reason}."
        return json_reply(error_body(message, kind="invalid_request_error"), status=error.status)
