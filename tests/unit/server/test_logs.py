"""Log lines: JSON, one a line, levels, and no text of any user."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import aiohttp
import pytest

from specbench.errors import BackendError, ConfigError
from specbench.server.app import RunningServer
from specbench.server.logs import JsonLog, LibraryRecords
from tests.fakes import FakeBackend
from tests.unit.server.test_app import with_server


def lines_of(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_event() -> None:
    out = io.StringIO()
    JsonLog(out).info("start", url="http://x", note="two\nlines é")
    [line] = lines_of(out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("at"))
    assert line == {
        "level": "info", "event": "start", "url": "http://x", "note": "two\nlines é"
    }  # fmt: skip


def test_levels_below_the_least_are_left_out() -> None:
    out = io.StringIO()
    log = JsonLog(out, "warning")
    log.info("a")
    log.warning("b")
    log.error("c")
    assert [line["event"] for line in lines_of(out)] == ["b", "c"]
    with pytest.raises(ConfigError, match="log_level='loud'"):
        JsonLog(out, "loud")


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    JsonLog(Gone()).info("a")
    closed = io.StringIO()
    closed.close()
    JsonLog(closed).info("a")


def test_what_libraries_log_has_the_same_shape() -> None:
    out = io.StringIO()
    logger = logging.Logger("aiohttp.server")
    logger.addHandler(LibraryRecords(JsonLog(out)))
    logger.info("not this")
    try:
        raise ValueError("oops")
    except ValueError:
        logger.exception("Error handling %s", "request")
    [line] = lines_of(out)
    assert (line["level"], line["event"], line["logger"]) == ("error", "library", "aiohttp.server")
    assert line["message"] == "Error handling request"
    assert "ValueError: oops" in line["traceback"]


def test_each_request_is_one_line_without_its_texts() -> None:
    out = io.StringIO()

    async def use(server: RunningServer, client: aiohttp.ClientSession, _: FakeBackend) -> None:
        url = server.url + "/v1/completions"
        for body in (
            {"prompt": "a secret prompt", "max_tokens": 11},
            {"prompt": "bad", "max_tokens": 11},
            {"prompt": "another secret", "max_tokens": 11, "oops": "a secret field"},
        ):
            async with client.post(url, json=body) as got:
                await got.read()

    with_server(use, FakeBackend(fails={"bad": BackendError("no")}), log=JsonLog(out))
    requests = [line for line in lines_of(out) if line["event"] == "request"]
    assert [line["outcome"] for line in requests] == ["length", "error"]
    good = requests[0]
    assert good["id"].startswith("cmpl-")
    assert (good["tokens"], good["verify_steps"], good["accepted"]) == (11, 4, 6)
    assert 0 <= good["ttft_ms"] <= good["duration_ms"]
    assert requests[1]["tokens"] == 1
    refused = [line for line in lines_of(out) if line["event"] == "refused"]
    assert [(line["path"], line["status"]) for line in refused] == [
        ("/v1/completions", 500),
        ("/v1/completions", 400),
    ]
    assert "secret" not in out.getvalue()
    assert "é100" not in out.getvalue()
