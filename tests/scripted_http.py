"""A loopback server that answers with exactly the bytes of a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

EVENTS = "text/event-stream"
SGLANG_INFO = {  # of /server_info, speculating
    "version": "0.5.23",
    "model_path": "/m/target",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/m/draft",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "context_length": 4096,
}


@dataclass(frozen=True)
class Reply:
    """Status, type and the pieces of the body, each written by itself.

    ``broken`` closes the connection in the middle of the body; ``hang`` never ends it.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    content_type: str = "application/json"
    broken: bool = False
    hang: bool = False


def as_json(data: object, status: int = 200) -> Reply:
    return Reply(pieces=[json.dumps(data).encode()], status=status)


def as_events(*data: object, done: bool = True) -> Reply:
    """One event per object; each is cut in the middle of its bytes."""
    pieces: list[bytes] = []
    for item in data:
        raw = b"data: " + json.dumps(item, ensure_ascii=False).encode() + b"\n\n"
        pieces += [raw[: len(raw) // 2], raw[len(raw) // 2 :]]
    if done:
        pieces.append(b"data: [DONE]\n\n")
    return Reply(pieces=pieces, content_type=EVENTS)


@dataclass
class Scripted:
    """The running server: its address, and what it was sent as (path, parsed body)."""

    url: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)


@asynccontextmanager
async def scripted(routes: Mapping[str, Reply]) -> AsyncIterator[Scripted]:
    """Serve ``routes`` (path to reply) on a free port; other paths answer 404."""
    state = Scripted()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _answer(state, routes, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield state


async def _answer(
    state: Scripted,
    routes: Mapping[str, Reply],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = 0
    for line in head.split("\r\n"):
        if line.lower().startswith("content-length:"):
            length = int(line.split(":")[1])
    body = await reader.readexactly(length)
    path = head.split(" ")[1]
    state.headers.append(head)
    state.asked.append((path, json.loads(body) if body else None))
    reply = routes.get(path, Reply(pieces=[b"{}"], status=404))
    writer.write(
        f"HTTP/1.1 {reply.status} X\r\nContent-Type: {reply.content_type}\r\n"
        f"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    )
    for piece in reply.pieces:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0.001)
    if reply.hang:
        await reader.read()
    if not reply.broken:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
