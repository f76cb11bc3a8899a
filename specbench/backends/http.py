"""One shared HTTP session to a server: JSON calls, event streams, and errors with a next step."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from specbench.backends.answers import decode_json, error_message
from specbench.backends.sse import SseParser
from specbench.errors import BackendError, ConfigError, UnreachableError
from specbench.provenance import private

_MAX_JSON_BYTES = 8 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
# uvicorn closes idle connections after 5 s; dropping them earlier here avoids sending a request
# down a connection that the server is closing.
_KEEPALIVE_S = 3.0
_ABSENT = frozenset({404, 405, 501})


class StatusError(BackendError):
    """The server answered with an error ``status``."""

    def __init__(self, what: str, *, status: int, todo: str = "") -> None:
        super().__init__(what, todo=todo)
        self.status = status


def check_url(url: str) -> str:
    """The base URL without trailing slash and without ``/v1``.

    Raises:
        ConfigError: not an http(s) address, or one with a user name or a password, which would
            end up in run.json.

    >>> check_url("http://127.0.0.1:8000/v1/")
    'http://127.0.0.1:8000'
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # which raises for what is none
    except ValueError as error:
        raise ConfigError(
            f"{private(url)!r} is not the address of a server: {error}.",
            expected="For example http://127.0.0.1:30000.",
        ) from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{private(url)!r} holds a user name or a password.",
            todo="Leave it out of the address; give a key in SPECBENCH_API_KEY.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(
            f"{url!r} is not the address of a server.",
            expected="For example http://127.0.0.1:30000.",
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class HttpSession:
    """Connections to one server. ``open`` and ``close`` it inside a running event loop.

    Args:
        url: base address; a trailing ``/v1`` is dropped.
        api_key: sent as a bearer token; never shown.
        connect_timeout_s: longest wait for a connection.
        call_timeout_s: longest wait for the answer of a JSON call (streams have no limit here;
            the load generator bounds a whole request).
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        connect_timeout_s: float = 10.0,
        call_timeout_s: float = 60.0,
    ) -> None:
        self.url = check_url(url)
        self._headers = {"Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._call_timeout = aiohttp.ClientTimeout(
            total=call_timeout_s, sock_connect=connect_timeout_s
        )
        self._stream_timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the connection pool; nothing is sent yet. The pool has no limit of its own."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
                headers=self._headers,
                trace_configs=[_reuse_seen()],
            )

    async def close(self) -> None:
        """Close every connection; never raises."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get_json(self, path: str) -> Any:
        """The parsed answer of GET ``path``; None when the server has no such path.

        Raises:
            UnreachableError: nothing answers.
            BackendError: an error status, or an answer that is no JSON.
        """
        return await self._call("GET", path, None)

    async def get_text(self, path: str) -> str | None:
        """The answer of GET ``path`` as text; None when the server has no such path.

        Raises:
            UnreachableError: nothing answers.
            BackendError: an error status, or an answer that is too long.
        """
        with _translated(self.url):
            async with self._live.get(
                self.url + path, timeout=self._call_timeout, allow_redirects=False
            ) as response:
                if response.status in _ABSENT:
                    return None
                if response.status != 200:
                    raise await _refusal(response)
                return (await _read(response, _MAX_JSON_BYTES)).decode(errors="replace")

    async def post_json(self, path: str, body: Mapping[str, Any]) -> Any:
        """The parsed answer of POST ``path``; raises as ``get_json`` does."""
        return await self._call("POST", path, body)

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        with _translated(self.url):
            async with await self._sent(method, path, body, self._call_timeout) as response:
                if body is None and response.status in _ABSENT:
                    return None
                if response.status != 200:
                    raise await _refusal(response)
                return decode_json(await _read(response, _MAX_JSON_BYTES))

    async def post_events(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[int, list[bytes]], None]:
        """POST ``body`` and yield (time of arrival in ns, data of the events that arrived).

        What comes in one read of the socket shares one time stamp. Closing the generator early
        closes the connection, by which the server learns that nobody is waiting any more.

        Raises:
            UnreachableError: nothing answers.
            BackendError: an error status, no event stream, or a connection that broke off.
        """
        parser = SseParser()
        with _translated(self.url):
            async with await self._sent("POST", path, body, self._stream_timeout) as response:
                if response.status != 200:
                    raise await _refusal(response)
                if response.content_type != "text/event-stream":
                    raise BackendError(
                        f"{response.url} answered with {response.content_type}: "
                        f"{await _error_text(response)}.",
                        expected="An event stream was asked for.",
                    )
                async for piece in response.content.iter_any():
                    at_ns = time.perf_counter_ns()
                    events = parser.feed(piece)
                    if events:
                        yield at_ns, events

    async def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, limit: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """The head of the answer; sent again where a kept connection turns out to be closed.

        llama.cpp's server promises to keep a connection and closes it after every stream, so a
        request that follows at once goes down a connection that is gone. Only a connection that
        was used before is excused, and each try takes one of those away.
        """
        while True:
            how = SimpleNamespace(reused=False)
            try:
                return await self._live.request(
                    method,
                    self.url + path,
                    json=body,
                    timeout=limit,
                    allow_redirects=False,
                    trace_request_ctx=how,
                )
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                if not how.reused:
                    raise

    @property
    def _live(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise BackendError("The connection to the server is not open.", todo="Call open first.")
        return self._session


def _reuse_seen() -> aiohttp.TraceConfig:
    """Marks the ``trace_request_ctx`` of a request that went down a connection used before."""

    async def reused(_: object, context: SimpleNamespace, __: object) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx.reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    return trace


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn the client library's errors into ours."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
        raise UnreachableError(
            f"Nothing answers at {url}: {error.__cause__ or error}.",
            todo="Start the server, or correct its address.",
        ) from None
    except aiohttp.ClientResponseError as error:
        told = " ".join(error.message.split())
        raise BackendError(
            f"What answers at {url} does not speak HTTP: {told[:160]}",
            todo="Check host and port, and http or https.",
        ) from None
    except aiohttp.ClientError as error:
        raise BackendError(
            f"The connection to {url} broke off: {type(error).__name__} {error!s:.200}.",
            todo="See the server's log.",
        ) from None
    except TimeoutError:
        raise BackendError(
            f"{url} did not answer in time.", todo="See whether the server is busy or stuck."
        ) from None


async def _refusal(response: aiohttp.ClientResponse) -> StatusError:
    """The error for an answer with an error status."""
    todo = ""
    if response.status in (401, 403):
        todo = "Give the server's API key."
    elif response.status == 404:
        todo = "Check the model name, and that the server has this route."
    return StatusError(
        f"{response.method} {response.url} answered HTTP {response.status}: "
        f"{await _error_text(response)}",
        todo=todo,
        status=response.status,
    )


async def _error_text(response: aiohttp.ClientResponse) -> str:
    """The message in an error body, whatever its shape; the beginning of the body otherwise."""
    body = (await _read(response, _MAX_ERROR_BYTES, cut=True)).decode(errors="replace").strip()
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return body[:300] or "(no text)"
    return error_message(parsed) or body[:300]


async def _read(response: aiohttp.ClientResponse, limit: int, *, cut: bool = False) -> bytes:
    """The body, at most ``limit`` bytes of it; longer is an error unless it may be ``cut``."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            if cut:
                break
            raise BackendError(f"{response.url} answered with more than {limit} bytes.")
    return bytes(body[:limit])
