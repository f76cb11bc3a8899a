"""``GET /live/events``: the live figures as server-sent events, to a bounded set of clients.

A message is made once for all clients, and only while there are any. A client that does not
read is dropped, never waited for: the engine shares this event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from specbench.server.fields import RefusedError
from specbench.server.live import NS_PER_S, RATE_S, LiveTap, Seen
from specbench.server.replies import event, start_events

BEAT = b": still here\n\n"


class Connection(Protocol):
    """A transport, of asyncio or of uvloop."""

    def abort(self) -> None:
        """Break it off; what was not sent is dropped."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """One reader: messages that wait for it (None ends the stream), and its connection."""

    connection: Connection | None
    queue: asyncio.Queue[bytes | None]


@dataclass(slots=True, kw_only=True)
class LiveHub:
    """Publishes a tap's state to its clients.

    Args:
        tap: what is shown.
        most_clients: more are refused with 503.
        interval_s: between two messages.
        heartbeat_s: while nothing changes a comment is sent this often, so that proxies and
            clients can tell a quiet server from a dead one.
        backlog: messages that may wait for a client before it is dropped.
        about: what stays the same; it comes with the first message.
    """

    tap: LiveTap
    most_clients: int = 16
    interval_s: float = 0.5
    heartbeat_s: float = 10.0
    backlog: int = 32
    about: Mapping[str, str] = field(default_factory=dict)
    clients: set[Client] = field(default_factory=set)
    _seen: Seen | None = None
    _sent_ns: int = 0
    _closed: bool = False

    def join_app(self, app: web.Application) -> None:
        """Publish while ``app`` lives."""
        app.cleanup_ctx.append(self._run)
        app.on_shutdown.append(self._close)

    async def _run(self, _: web.Application) -> AsyncIterator[None]:
        """Publish while the application lives."""
        task = asyncio.get_running_loop().create_task(self._publish_always())
        yield
        task.cancel()
        await asyncio.wait([task])

    async def _close(self, _: web.Application) -> None:
        """End every stream, so that a shutdown need not wait for them."""
        self._closed = True
        for client in list(self.clients):
            self._give(client, None)

    def join(self, connection: Connection | None) -> Client:
        """Take a client; its first message is the whole state.

        Raises:
            RefusedError: as many as are allowed are watching, or the server shuts down.
        """
        if self._closed or len(self.clients) >= self.most_clients:
            raise RefusedError(
                f"{len(self.clients)} clients watch already, which is all that this server takes."
                if not self._closed
                else "The server is shutting down.",
                todo="Close another live page.",
                status=503,
                code="too_many_viewers",
            )
        client = Client(connection=connection, queue=asyncio.Queue(self.backlog))
        client.queue.put_nowait(event({"about": self.about, **self.tap.state()[0]}))
        self.clients.add(client)
        return client

    def leave(self, client: Client) -> None:
        """Forget a client."""
        self.clients.discard(client)

    def publish(self) -> None:
        """Send what changed since the last call, or a heartbeat when one is due."""
        now = time.perf_counter_ns()
        if not self.clients:
            return
        if now - self.tap.changed_ns < (RATE_S + 2) * NS_PER_S:
            state, self._seen = self.tap.state(self._seen)
            message = event(state)
        elif now - self._sent_ns >= self.heartbeat_s * NS_PER_S:
            message = BEAT
        else:
            return
        self._sent_ns = now
        for client in list(self.clients):
            self._give(client, message)

    def _give(self, client: Client, message: bytes | None) -> None:
        try:
            client.queue.put_nowait(message)
        except asyncio.QueueFull:
            self.leave(client)
            if client.connection is not None:
                client.connection.abort()  # ends the handler, which may be stuck in a write

    async def _publish_always(self) -> None:
        while True:
            await asyncio.sleep(self.interval_s)
            self.publish()


HUB = web.AppKey("hub", LiveHub)


async def live_events(http: web.Request) -> web.StreamResponse:
    """GET /live/events."""
    hub = http.app[HUB]
    client = hub.join(http.transport)
    try:
        response = await start_events(http)
        while (message := await client.queue.get()) is not None:
            await response.write(message)
        await response.write_eof()
    except ConnectionResetError:  # the page went away before this task was cancelled
        return web.Response()  # reaches nobody
    finally:
        hub.leave(client)
    return response
