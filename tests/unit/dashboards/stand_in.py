"""A stand-in for Grafana's HTTP API: keeps what it is sent, answers as Grafana does, or as told."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass
class StandIn:
    """``sent`` holds (method, path, body) in order; ``tokens`` the Authorization of each.

    ``answers`` maps (method, path) to (status, body) and wins over what Grafana would say; a body
    of bytes is sent as it is. While ``slow`` is set, every answer waits for ``go_on``.
    """

    url: str = ""
    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    answers: Mapping[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    folders: dict[str, Json] = field(default_factory=dict)
    datasources: dict[str, Json] = field(default_factory=dict)
    boards: dict[str, Json] = field(default_factory=dict)
    slow: bool = False
    go_on: threading.Event = field(default_factory=threading.Event)

    def posted(self, path: str) -> list[Any]:
        """The bodies of all POSTs to ``path``."""
        return [body for method, to, body in self.sent if (method, to) == ("POST", path)]

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and body, as Grafana would give them."""
        if (method, path) in self.answers:
            return self.answers[method, path]
        if method == "GET":
            return self._read(path)
        if path == "/api/folders":
            self.folders[body["uid"]] = body
        elif path.startswith("/api/datasources"):
            self.datasources[body["name"]] = {"id": 7, **body}
        elif path == "/api/dashboards/db":
            return self._save(body)
        return 200, {"id": 1, "message": "done"}

    def _read(self, path: str) -> tuple[int, Any]:
        kind, _, name = path.removeprefix("/api/").rpartition("/")
        kept = {
            "folders": self.folders,
            "datasources/name": self.datasources,
            "dashboards/uid": self.boards,
        }[kind]
        name = name.replace("%20", " ")
        return (200, kept[name]) if name in kept else (404, {"message": "not found"})

    def _save(self, body: Json) -> tuple[int, Any]:
        uid = body["dashboard"]["uid"]
        if uid in self.boards and not body["overwrite"]:
            return 412, {"status": "version-mismatch", "message": "changed by someone else"}
        self.boards[uid] = {"dashboard": {**body["dashboard"], "id": 3}, "meta": {}}
        return 200, {"uid": uid, "status": "success"}


@contextlib.contextmanager
def grafana_stand_in() -> Iterator[StandIn]:
    """Serve a stand-in on a free loopback port."""
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            raw = self.rfile.read(length)
            body = json.loads(raw) if raw else None
            state.sent.append((self.command, self.path, body))
            state.tokens.append(self.headers.get("Authorization"))
            if state.slow:
                state.go_on.wait(30)
            status, data = state.answer(self.command, self.path, body)
            page = data if isinstance(data, bytes) else json.dumps(data).encode()
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", f"{state.url}/elsewhere")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815

        def log_message(self, *what: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
