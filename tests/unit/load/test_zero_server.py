from __future__ import annotations

import json

import pytest

from specbench.load.zero_server import prepared_answer


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
def test_one_write_per_token_between_header_and_end(path: str) -> None:
    writes = prepared_answer(path, 5)
    events = [w for w in writes if b"data: {" in w]
    usage = 1 if path == "/v1/completions" else 0
    assert len(events) == 5 + usage
    assert writes[0].startswith(b"HTTP/1.1 200")
    assert writes[-1] == b"0\r\n\r\n"
    for write in events:
        size, _, rest = write.partition(b"\r\n")
        assert len(rest) == int(size, 16) + 2
        json.loads(rest.strip().removeprefix(b"data: "))
