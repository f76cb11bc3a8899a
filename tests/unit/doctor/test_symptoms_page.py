"""A page by http: the key that is sent, what is no page, and what a place may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from specbench.doctor.symptoms_page import parse_page, read_page
from specbench.errors import ConfigError, UnreachableError
from specbench.serve_config import API_KEY_VARIABLE

KEY = "s3cret"


class Pages(BaseHTTPRequestHandler):
    """/metrics wants the key, /moved redirects to /open, /raw speaks no HTTP, /short is cut off."""

    seen: list[str | None]

    def do_GET(self) -> None:
        sent = self.headers["Authorization"]
        self.seen.append(sent)
        if self.path == "/raw":
            self.wfile.write(b"garbage\r\n\r\n")
            return
        right = self.path != "/metrics" or sent == f"Bearer {KEY}"
        self.send_response(302 if self.path == "/moved" else 200 if right else 401)
        if self.path == "/moved":
            self.send_header("Location", "/open")
        self.send_header("Content-Length", "99" if self.path == "/short" else "5")
        self.end_headers()
        self.wfile.write(b"up 1\n")

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def address() -> Iterator[str]:
    Pages.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_key_is_sent_and_not_handed_on(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, KEY)
    assert read_page(f"{address}/metrics") == "up 1\n"
    assert read_page(f"{address}/moved") == "up 1\n"
    assert Pages.seen == [f"Bearer {KEY}", f"Bearer {KEY}", None]


def test_a_page_that_wants_a_key_says_so(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)
    with pytest.raises(UnreachableError, match=rf"401.* Set {API_KEY_VARIABLE} to its key"):
        read_page(f"{address}/metrics")
    assert Pages.seen == [None]
    monkeypatch.setenv(API_KEY_VARIABLE, "two\nlines")
    with pytest.raises(ConfigError, match="holds no key"):
        read_page(f"{address}/metrics")


@pytest.mark.parametrize("path", ["raw", "short"])
def test_what_is_no_whole_answer_is_an_error(address: str, path: str) -> None:
    with pytest.raises(UnreachableError, match="cannot be read"):
        read_page(f"{address}/{path}")


def test_names_keep_their_suffix_and_numbers_are_finite() -> None:
    page = parse_page('# HELP x\nx{a="}\\"",b="2"} 1 17 # {c="d"} 1\nx_total 2\nx NaN\nx +Inf\n')
    assert page == {"x": {frozenset({("a", '}\\"'), ("b", "2")}): 1.0}, "x_total": {frozenset(): 2}}
