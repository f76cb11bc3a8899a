from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.backends.sse import SseParser
from specbench.errors import BackendError

STREAM = (
    "\ufeff: a comment\r\n"
    "data: première\n\n"
    "event: message\rid: 7\rdata:zweite Zeile\rdata:  dritte\r\r"
    "retry: 10\r\ndata\r\ndata: 日本\r\n\r\n"
    "data: [DONE]\n\n"
    "data: never ended"
).encode()
EVENTS = [
    "première".encode(),
    b"zweite Zeile\n dritte",
    "\n日本".encode(),
    b"[DONE]",
]


def test_all_line_ends_comments_and_other_fields() -> None:
    assert SseParser().feed(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_it_does_not_matter_where_the_bytes_are_split(cuts: list[int]) -> None:
    parser = SseParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    got = [event for a, b in pairwise(edges) for event in parser.feed(STREAM[a:b])]
    assert got == EVENTS


def test_byte_by_byte() -> None:
    parser = SseParser()
    assert [e for i in range(len(STREAM)) for e in parser.feed(STREAM[i : i + 1])] == EVENTS


LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"))


@given(st.lists(LINES, min_size=1), st.data())
@settings(max_examples=50, deadline=None)
def test_what_is_sent_arrives(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    raw = "".join(f"data: {t}{end}{end}" for t in texts).encode()
    cut = data.draw(st.integers(0, len(raw)))
    parser = SseParser()
    assert parser.feed(raw[:cut]) + parser.feed(raw[cut:]) == [t.encode() for t in texts]


def test_an_empty_event_is_none() -> None:
    assert SseParser().feed(b"\n\n: ping\n\nevent: x\n\n") == []


@pytest.mark.parametrize("raw", [b"data: " + b"x" * 200, b"data: xxxxxxxx\n" * 20])
def test_a_line_and_an_event_are_bounded(raw: bytes) -> None:
    parser = SseParser(max_event_bytes=100)

    def feed_all() -> None:
        for i in range(0, len(raw), 10):
            parser.feed(raw[i : i + 10])

    with pytest.raises(BackendError, match="more than 100 bytes"):
        feed_all()
