from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from specbench.config import SpecConfig
from specbench.errors import BackendError
from specbench.request import Request
from specbench.server import respond as respond_module
from specbench.server.app import build_app, serve
from specbench.server.respond import Asked
from specbench.server.service import Service
from specbench.trace import Chunk
from tests.fakes import FakeBackend, fake_text

TEXT = fake_text(range(100, 106))


def post(path: str, body: dict[str, Any], fake: FakeBackend | None = None) -> tuple[int, str, str]:
    """Status, content type and body of one answer."""

    async def ask() -> tuple[int, str, str]:
        backend = fake or FakeBackend()
        facts = await backend.open()
        app = build_app(backend, facts, spec=backend.spec, batch_size=4)
        server = await serve(app, drain_s=0.2)
        try:
            async with (
                aiohttp.ClientSession() as client,
                client.post(server.url + path, json=body) as answer,
            ):
                return answer.status, answer.content_type, await answer.text()
        finally:
            await server.stop()

    return asyncio.run(ask())


def events(raw: str) -> list[Any]:
    parts = raw.removesuffix("\n\n").split("\n\n")
    assert parts.pop() == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts]


BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "p", "max_tokens": 6},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "p"}], "max_tokens": 6},
    "/generate": {"text": "p", "sampling_params": {"max_new_tokens": 6}},
}


def test_whole_completion() -> None:
    status, kind, raw = post("/v1/completions", BODIES["/v1/completions"])
    data = json.loads(raw)
    assert (status, kind) == (200, "application/json")
    assert data["object"] == "text_completion"
    assert data["choices"] == [
        {"index": 0, "finish_reason": "length", "text": TEXT, "logprobs": None}
    ]
    assert data["usage"] == {"prompt_tokens": 1, "completion_tokens": 6, "total_tokens": 7}
    assert "specbench" not in data


def test_whole_chat() -> None:
    _, _, raw = post("/v1/chat/completions", BODIES["/v1/chat/completions"])
    data = json.loads(raw)
    assert data["object"] == "chat.completion"
    assert data["choices"][0]["message"] == {"role": "assistant", "content": TEXT}


def test_whole_generate() -> None:
    _, _, raw = post("/generate", {**BODIES["/generate"], "rid": "mine"})
    data = json.loads(raw)
    assert data["text"] == TEXT
    assert data["output_ids"] == list(range(100, 106))
    meta = data["meta_info"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    # The fake accepts 3, then 0: 1 + 4 + 1 tokens.
    assert (meta["spec_verify_ct"], meta["spec_num_correct_drafts"]) == (2, 3)
    assert meta["spec_correct_drafts_histogram"] == [1, 0, 0, 1]


def test_streamed_completion_is_one_event_per_chunk_and_then_the_usage() -> None:
    body = {**BODIES["/v1/completions"], "stream": True, "stream_options": {"include_usage": True}}
    status, kind, raw = post("/v1/completions", body)
    *pieces, last, usage = events(raw)
    assert (status, kind) == (200, "text/event-stream")
    assert [e["choices"][0]["text"] for e in pieces] == [
        fake_text([100]),
        fake_text(range(101, 105)),
        fake_text([105]),
    ]
    assert all(e["choices"][0]["finish_reason"] is None for e in pieces)
    assert last["choices"][0] == {"index": 0, "finish_reason": "length", "text": ""}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 6
    assert len({e["id"] for e in [*pieces, last, usage]}) == 1


def test_streamed_chat_gives_the_role_with_the_first_text() -> None:
    body = {**BODIES["/v1/chat/completions"], "stream": True}
    *pieces, last = events(post("/v1/chat/completions", body)[2])
    assert pieces[0]["choices"][0]["delta"] == {"role": "assistant", "content": fake_text([100])}
    assert pieces[1]["choices"][0]["delta"] == {"content": fake_text(range(101, 105))}
    assert last["choices"][0]["delta"] == {}
    assert "usage" not in last


def test_running_totals_when_asked() -> None:
    options = {"continuous_usage_stats": True}
    body = {**BODIES["/v1/completions"], "stream": True, "stream_options": options}
    *pieces, _ = events(post("/v1/completions", body)[2])
    assert [e["usage"]["completion_tokens"] for e in pieces] == [1, 5, 6]


def test_streamed_generate_repeats_the_text_so_far() -> None:
    got = events(post("/generate", {**BODIES["/generate"], "stream": True})[2])
    assert [e["text"] for e in got] == [
        fake_text(range(100, 101)),
        fake_text(range(100, 105)),
        TEXT,
        TEXT,
    ]
    assert [e["meta_info"]["completion_tokens"] for e in got] == [1, 5, 6, 6]
    assert got[2]["meta_info"]["finish_reason"] is None
    assert got[3]["meta_info"]["spec_verify_ct"] == 2


@pytest.mark.parametrize("path", list(BODIES))
@pytest.mark.parametrize("stream", [False, True])
def test_steps_when_asked(path: str, stream: bool) -> None:
    raw = post(path, {**BODIES[path], "stream": stream, "return_steps": True})[2]
    extension = (events(raw)[-1] if stream else json.loads(raw))["specbench"]
    assert [s["accepted"] for s in extension["steps"]] == [3, 0]
    assert extension["output_ids"] == list(range(100, 106))
    assert extension["usage"]["verify_steps"] == 2


@pytest.mark.parametrize("path", list(BODIES))
def test_an_error_after_the_first_chunk_is_an_event(path: str) -> None:
    body = {**BODIES[path], "stream": True}
    fake = Failing()
    *_, last = events(post(path, body, fake)[2])
    assert last["error"]["message"] == "cut"
    assert fake.in_flight == 0


@pytest.mark.parametrize("path", list(BODIES))
def test_the_same_error_without_streaming_has_a_status(path: str) -> None:
    status, _, raw = post(path, BODIES[path], Failing())
    assert status == 500
    assert json.loads(raw)["error"] == {
        "message": "cut",
        "type": "server_error",
        "param": None,
        "code": None,
    }


@pytest.mark.parametrize("stream", [False, True])
def test_a_stream_that_ends_without_a_reason_is_an_error(stream: bool) -> None:
    fake = FakeBackend(silent=frozenset({"p"}))
    _, _, raw = post("/v1/completions", {**BODIES["/v1/completions"], "stream": stream}, fake)
    data = events(raw)[-1] if stream else json.loads(raw)
    assert "without saying why" in data["error"]["message"]


class Failing(FakeBackend):
    """Fails every request after its first chunk."""

    async def _script(self, request: Any) -> Any:
        yield Chunk(at_ns=1, tokens=1, text="x")
        raise BackendError("cut")


def test_a_client_that_went_away_is_no_error_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gone(*_: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(respond_module, "_stream", gone)
    service = Service(
        FakeBackend(),
        asyncio.run(FakeBackend().open()),
        model="m",
        spec=SpecConfig.chain(3),
        batch_size=1,
        max_in_flight=1,
    )
    asked = Asked(request=Request(request_id="r", prompt="x"), stream=True, shape=object())  # type: ignore[arg-type]
    asyncio.run(respond_module.respond(None, service, asked))  # type: ignore[arg-type]
    assert service.in_flight == 0


class Endless(FakeBackend):
    """Streams more than any connection holds."""

    async def _script(self, request: Any) -> Any:
        while True:
            await asyncio.sleep(0)
            yield Chunk(at_ns=1, tokens=1, text="x" * 2**20)


def test_a_client_that_stops_reading_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(respond_module, "SEND_LIMIT_S", 0.1)

    async def ask() -> None:
        fake = Endless()
        app = build_app(fake, await fake.open(), spec=fake.spec, batch_size=4)
        server = await serve(app, drain_s=0.2)
        body = json.dumps({"prompt": "p", "stream": True}).encode()
        head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        reader, writer = await asyncio.open_connection(server.host, server.port, limit=2**10)
        writer.write(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n".encode() + body)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await asyncio.wait_for(fake.idle(), 30)
        assert server.in_flight == 0
        writer.close()
        await server.stop()

    asyncio.run(ask())
