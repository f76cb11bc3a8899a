from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

import pytest

from specbench.backends.http import HttpSession, StatusError, check_url
from specbench.errors import BackendError, ConfigError, UnreachableError
from tests.scripted_http import EVENTS, Reply, Scripted, as_events, as_json, scripted

T = TypeVar("T")


def against(routes: dict[str, Reply], use: Callable[[HttpSession, Scripted], Awaitable[T]]) -> T:
    async def body() -> T:
        async with scripted(routes) as server:
            http = HttpSession(server.url, api_key="k3y", call_timeout_s=30.0)
            await http.open()
            try:
                return await use(http, server)
            finally:
                await http.close()

    return asyncio.run(body())


async def events_of(http: HttpSession) -> list[bytes]:
    got: list[bytes] = []
    async with aclosing(http.post_events("/s", {"q": 1})) as arrivals:
        async for _, events in arrivals:
            got += events
    return got


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8000", "ftp://x", "http://", "http://x/?a=1", "http://x#y", ""),
        *("http://[::1", "http://h:99999", "http://h:abc"),
    ],
)
def test_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="not the address"):
        check_url(url)


def test_an_address_with_a_password_is_refused_and_does_not_show_it() -> None:
    with pytest.raises(ConfigError, match="a user name or a password") as refused:
        check_url("http://me:secret@h:1")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_one_base_address(url: str) -> None:
    assert check_url(url) == "http://h:1"


def test_json_calls() -> None:
    async def use(http: HttpSession, server: Scripted) -> None:
        assert await http.get_json("/a") == {"x": 1}
        assert await http.get_json("/absent") is None
        assert await http.post_json("/b", {"y": 2}) == [3]
        assert server.asked == [("/a", None), ("/absent", None), ("/b", {"y": 2})]
        assert all("Authorization: Bearer k3y" in head for head in server.headers)

    against({"/a": as_json({"x": 1}), "/b": as_json([3])}, use)


def test_refusals_carry_status_message_and_next_step() -> None:
    async def use(http: HttpSession, _: Scripted) -> None:
        with pytest.raises(StatusError, match="too long") as refused:
            await http.post_json("/a", {})
        assert refused.value.status == 400
        with pytest.raises(StatusError, match="API key"):
            await http.get_json("/b")
        with pytest.raises(StatusError, match="upstream is down"):
            await events_of(http)

    against(
        {
            "/a": as_json({"error": {"message": "too long"}}, 400),
            "/b": as_json({"detail": "who are you"}, 401),
            "/s": Reply(pieces=[b"upstream is down"], status=503, content_type="text/plain"),
        },
        use,
    )


def test_a_long_error_body_is_cut_and_a_long_answer_refused() -> None:
    async def use(http: HttpSession, _: Scripted) -> None:
        with pytest.raises(StatusError) as refused:
            await http.get_json("/long_error")
        assert len(str(refused.value)) < 1000
        with pytest.raises(BackendError, match="more than"):
            await http.get_json("/long")

    against(
        {
            "/long_error": Reply(pieces=[b"e" * 50_000] * 3, status=500),
            "/long": Reply(pieces=[b"[" + b" " * 3_000_000] * 3),
        },
        use,
    )


def test_a_stream() -> None:
    async def use(http: HttpSession, _: Scripted) -> list[bytes]:
        return await events_of(http)

    got = against({"/s": as_events({"t": "é"}, {"t": "日本"})}, use)
    assert [json.loads(e) for e in got[:2]] == [{"t": "é"}, {"t": "日本"}]
    assert got[2] == b"[DONE]"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(pieces=[b"data: 1\n\n"], content_type=EVENTS, broken=True), "broke off"),
        (as_json({"error": {"message": "no streaming here"}}), "no streaming here"),
        (Reply(pieces=[b"<html>hello"], content_type="text/html"), "text/html"),
    ],
)
def test_a_stream_that_is_none_or_breaks(reply: Reply, said: str) -> None:
    async def use(http: HttpSession, _: Scripted) -> None:
        with pytest.raises(BackendError, match=said):
            await events_of(http)

    against({"/s": reply}, use)


def test_closing_a_stream_early_closes_its_connection() -> None:
    async def use(http: HttpSession, _: Scripted) -> None:
        stream = http.post_events("/s", {})
        assert await anext(stream)
        await stream.aclose()

    against({"/s": Reply(pieces=[b"data: 1\n\n"], content_type=EVENTS, hang=True)}, use)


async def dropping(keep: int) -> tuple[list[bytes], list[str], int]:
    """Two streams one after the other, of a server that drops a connection after ``keep`` answers.

    Events, errors, and how many requests reached it. As llama.cpp's server it promises to keep
    connections; the next request on one is read and gets no answer.
    """
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            for answers in range(keep + 1):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(len(b'{"q": 1}'))
                heads.append(head)
                if answers < keep:
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                        b"Keep-Alive: timeout=5, max=100\r\nTransfer-Encoding: chunked\r\n\r\n"
                        b"9\r\ndata: a\n\n\r\n0\r\n\r\n"
                    )
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        http = HttpSession(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await http.open()
        got, errors = list[bytes](), list[str]()
        for _ in range(2):
            try:
                got += await events_of(http)
            except BackendError as error:
                errors.append(str(error))
        await http.close()
    return got, errors, len(heads)


def test_a_kept_connection_that_is_gone_is_no_failed_request() -> None:
    assert asyncio.run(dropping(1)) == ([b"a", b"a"], [], 3)


def test_a_new_connection_that_is_dropped_is_a_failed_request() -> None:
    got, errors, requests = asyncio.run(dropping(0))
    assert (got, requests) == ([], 2)
    assert all("broke off" in error for error in errors)
    assert len(errors) == 2


def test_nothing_answers() -> None:
    async def body() -> str:
        async with scripted({}) as server:
            url = server.url
        http = HttpSession(url)
        await http.open()
        try:
            with pytest.raises(UnreachableError, match="Start the server"):
                await http.get_json("/a")
            with pytest.raises(UnreachableError) as unreachable:
                await events_of(http)
            assert url in str(unreachable.value)
        finally:
            await http.close()
        return str(unreachable.value)

    assert "k3y" not in asyncio.run(body())


def test_a_call_that_is_never_answered_times_out() -> None:
    async def body() -> None:
        async with scripted({"/a": Reply(hang=True)}) as server:
            http = HttpSession(server.url, call_timeout_s=0.05)
            await http.open()
            with pytest.raises(BackendError, match="in time"):
                await http.get_json("/a")
            await http.close()

    asyncio.run(body())


def test_use_before_open_is_an_error_and_close_is_always_fine() -> None:
    async def body() -> None:
        http = HttpSession("http://127.0.0.1:9")
        await http.close()
        with pytest.raises(BackendError, match="open first"):
            await http.get_json("/")

    asyncio.run(body())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.0\r\n", "does not speak HTTP: Bad status line"),
        (b"\x00\xff" * 40_000, "does not speak HTTP: Bad status line"),
        (b"A" * 500_000, "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"A" * 500_000, "does not speak HTTP: Got more than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"z" * 9000 + b"\r\n",
         "does not speak HTTP: Invalid character in chunk size"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "broke off"),
        (b"", "broke off"),
    ],
)  # fmt: skip
def test_raw_bytes_are_one_short_error(raw: bytes, said: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        with suppress(ConnectionError):
            writer.write(raw)
            await writer.drain()
        writer.close()

    async def body() -> str:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        http = HttpSession(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await http.open()
        try:
            with pytest.raises(BackendError) as refused:
                await http.get_json("/server_info")
        finally:
            await http.close()
            server.close()
        return str(refused.value)

    told = asyncio.run(body())
    assert said in told
    assert len(told) < 400
