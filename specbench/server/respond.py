"""Answer one request, streaming or whole: the part that every generating route shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from specbench.backends.base import Event
from specbench.errors import SpecbenchError
from specbench.request import Request
from specbench.server.outcome import Outcome, collect
from specbench.server.replies import DONE, body_of, event, json_reply, start_events
from specbench.server.service import Service
from specbench.trace import Chunk

SEND_LIMIT_S = 60.0  # for a client to take what waits for it


class Shape(Protocol):
    """How a route writes its answers; one object per request."""

    def piece(self, chunk: Chunk, so_far: Outcome) -> Mapping[str, Any]:
        """The event of one chunk; ``so_far`` has it filed already."""
        ...

    def ending(self, outcome: Outcome) -> list[Mapping[str, Any]]:
        """The events after the last chunk."""
        ...

    def whole(self, outcome: Outcome) -> Mapping[str, Any]:
        """The answer in one piece."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was read and checked, and how its answer is to look."""

    request: Request
    stream: bool
    shape: Shape


async def respond(http: web.Request, service: Service, asked: Asked) -> web.StreamResponse:
    """Run ``asked`` on the backend and write the answer.

    A client that goes away ends this task, which closes the backend's stream and so cancels the
    request there; one that stops reading is cut off after ``SEND_LIMIT_S``. An error before the
    first chunk has its HTTP status; a later one is an error event, since the status has been sent.

    Raises:
        RefusedError: the server takes no request now.
        SpecbenchError: the backend failed before anything was sent.
    """
    with service.admitted():
        async with aclosing(service.stream(asked.request)) as events:
            if asked.stream:
                try:
                    return await _stream(http, events, asked.shape)
                except ConnectionResetError:  # the client went away before its task was cancelled
                    return web.Response()  # reaches nobody
            return json_reply(asked.shape.whole(await collect(events)))


async def _stream(
    http: web.Request, events: AsyncGenerator[Event, None], shape: Shape
) -> web.StreamResponse:
    outcome = Outcome()
    response: web.StreamResponse | None = None
    try:
        async for item in events:
            outcome.add(item)
            if isinstance(item, Chunk):
                if response is None:
                    response = await start_events(http)
                await _sent(http, response.write(event(shape.piece(item, outcome))))
        last = [event(data) for data in shape.ending(outcome)]
    except SpecbenchError as error:
        if response is None:
            raise
        last = [event(body_of(error))]
    if response is None:  # a request that ended without a token
        response = await start_events(http)
    await _sent(http, response.write(b"".join(last) + DONE))
    await _sent(http, response.write_eof())
    return response


async def _sent(http: web.Request, sending: Awaitable[None]) -> None:
    """Wait until the client's connection has taken what is sent.

    Raises:
        ConnectionResetError: the client does not read, and would hold its place for ever.
    """
    try:
        async with asyncio.timeout(SEND_LIMIT_S):
            await sending
    except TimeoutError:
        if http.transport is not None:
            http.transport.abort()
        raise ConnectionResetError("the client does not read") from None
