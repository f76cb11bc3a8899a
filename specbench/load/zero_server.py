"""A server that computes nothing: prepared answers, so that only the client costs time.

Run as ``python -m specbench.load.zero_server TOKENS``: it prints its port and serves on loopback
until its standard input closes. Each answer has TOKENS events of one token; every event is
written by itself, in turn with those of the other connections. It knows OpenAI's completions
and SGLang's ``/generate``, as little of HTTP as the self-test's own requests need, and no errors.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def prepared_answer(path: str, tokens: int) -> list[bytes]:
    """The writes that answer a POST to ``path``: header, ``tokens`` events, end."""
    events = _generate_events(tokens) if path == "/generate" else _openai_events(tokens)
    parts = [b"data: " + json.dumps(data).encode() + b"\n\n" for data in events]
    parts.append(b"data: [DONE]\n\n")
    return [_STREAM, *(_http_chunk(part) for part in parts), b"0\r\n\r\n"]


def _openai_events(tokens: int) -> Iterator[dict[str, Any]]:
    for index in range(tokens):
        last = index == tokens - 1
        choice = {"index": 0, "text": " word", "finish_reason": "length" if last else None}
        yield {"id": "0", "object": "text_completion", "model": "zero", "choices": [choice]}
    yield {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": tokens}}


def _generate_events(tokens: int) -> Iterator[dict[str, Any]]:
    for count in range(1, tokens + 1):
        reason = {"type": "length", "length": tokens} if count == tokens else None
        meta = {"id": "0", "completion_tokens": count, "finish_reason": reason}
        yield {"text": " word" * count, "meta_info": meta}


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class _Connection(asyncio.Protocol):
    """One client connection; requests come one after another."""

    def __init__(self, answers: dict[str, list[bytes]]) -> None:
        self._answers = answers
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # a TCP server makes no other kind
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator or len(rest) < _content_length(head):
            return
        self._buffer = b""
        method, path = head.split(b" ", 2)[:2]
        writes = self._answers[path.decode()] if method == b"POST" else _plain(path)
        self._write(iter(writes))

    def _write(self, writes: Iterator[bytes]) -> None:
        """One write per turn of the loop, so that connections take turns."""
        part = next(writes, None)
        if part is not None and self._transport is not None:
            self._transport.write(part)
            asyncio.get_running_loop().call_soon(self._write, writes)


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def _plain(path: bytes) -> list[bytes]:
    """The answer of a GET: the model list, and nothing else is there."""
    if path == b"/v1/models":
        body = b'{"data": [{"id": "zero"}]}'
        status = b"200 OK"
    else:
        body, status = b"{}", b"404 Not Found"
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return [head % (status, len(body)) + body]


async def main(tokens: int) -> None:
    """Serve until standard input closes, which it also does when the parent process ends."""
    answers = {path: prepared_answer(path, tokens) for path in ("/v1/completions", "/generate")}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(answers), "127.0.0.1", 0)
    async with server:
        sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
