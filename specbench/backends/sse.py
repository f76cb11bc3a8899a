"""Server-sent events from raw bytes: bounded, and indifferent to where the bytes are split.

After the WHATWG HTML standard, section 9.2.6; of its fields only ``data`` means anything here.
"""

from __future__ import annotations

from specbench.errors import BackendError

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Feed bytes as they arrive, get the data of each event that became complete.

    Lines may end in LF, CRLF or CR. An event is cut only at line ends, so a character whose
    UTF-8 bytes come in two pieces is never torn.

    Args:
        max_event_bytes: longest line and longest event that is held in memory.

    >>> parser = SseParser()
    >>> parser.feed(b"data: a\\r"), parser.feed(b"\\ndata: b\\n\\n: note\\n")
    ([], [b'a\\nb'])
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._tail = bytearray()
        self._data: list[bytes] = []
        self._held = 0
        self._skip_lf = False
        self._started = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Events that ``piece`` completes: their ``data`` lines joined by LF.

        Raises:
            BackendError: a line or an event is longer than the bound.
        """
        if self._skip_lf and piece:
            piece = piece[1:] if piece[0] == 0x0A else piece  # the LF of a split CRLF
            self._skip_lf = False
        if b"\n" not in piece and b"\r" not in piece:
            self._tail += piece
            self._check(len(self._tail))
            return []
        self._skip_lf = piece.endswith(b"\r")
        lines = (bytes(self._tail) + piece).splitlines()
        self._tail.clear()
        if not piece.endswith((b"\n", b"\r")):
            self._tail += lines.pop()
            self._check(len(self._tail))
        events: list[bytes] = []
        for line in lines:
            self._take(line, events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not self._started:
            line = line.removeprefix(_BOM)
            self._started = True
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
                self._held = 0
            return
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._held += len(value) + 1
            self._check(self._held)
        elif line == b"data":
            self._data.append(b"")

    def _check(self, size: int) -> None:
        if size > self._max:
            raise BackendError(
                f"The server sent an event of more than {self._max} bytes.",
                todo="Check that the address is that of a language-model server.",
            )
