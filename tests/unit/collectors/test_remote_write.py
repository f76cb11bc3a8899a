"""The bytes of a remote write, read back by a reader written from the formats' descriptions."""

from __future__ import annotations

import struct

import pytest

from specbench.collectors.remote_write import encode

Fields = list[tuple[int, object]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def unsnappy(block: bytes) -> bytes:
    """Literals only: low two bits 00, the upper six give the length or the bytes that hold it."""
    size, at = varint(block, 0)
    out = b""
    while at < len(block):
        assert block[at] & 3 == 0
        length = block[at] >> 2
        at += 1
        if length >= 60:
            wide = length - 59
            length = int.from_bytes(block[at : at + wide], "little")
            at += wide
        out += block[at : at + length + 1]
        at += length + 1
    assert len(out) == size
    return out


def fields(message: bytes) -> Fields:
    found: Fields = []
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
            found.append((key >> 3, value))
        elif key & 7 == 1:
            found.append((key >> 3, struct.unpack("<d", message[at : at + 8])[0]))
            at += 8
        else:
            size, at = varint(message, at)
            found.append((key >> 3, message[at : at + size]))
            at += size
    return found


def bytes_of(found: Fields, number: int) -> list[bytes]:
    return [value for key, value in found if key == number and isinstance(value, bytes)]


def decode(body: bytes) -> list[tuple[list[tuple[str, str]], list[tuple[object, object]]]]:
    """(labels, samples) of every series."""
    series = []
    for one in bytes_of(fields(unsnappy(body)), 1):
        pairs = [fields(pair) for pair in bytes_of(fields(one), 1)]
        labels = [(bytes_of(p, 1)[0].decode(), bytes_of(p, 2)[0].decode()) for p in pairs]
        samples = [dict(fields(sample)) for sample in bytes_of(fields(one), 2)]
        series.append((labels, [(s[1], s[2]) for s in samples]))
    return series


def test_labels_are_sorted_and_samples_stay_in_order() -> None:
    labels = {"point": "k3.bs1", "__name__": "x_total", "arm": "spec", "draft": ""}
    body = encode([(labels, [(0.0, 1_700_000_000_000), (2.5, 1_700_000_060_000)])])
    assert decode(body) == [
        (
            [("__name__", "x_total"), ("arm", "spec"), ("point", "k3.bs1")],
            [(0.0, 1_700_000_000_000), (2.5, 1_700_000_060_000)],
        )
    ]


@pytest.mark.parametrize("count", [0, 1, 700, 3000])
def test_any_size_comes_back(count: int) -> None:
    series = [({"__name__": "x", "i": str(i) * 9}, [(float(i), i)]) for i in range(count)]
    assert [samples for _, samples in decode(encode(series))] == [
        [(float(i), i)] for i in range(count)
    ]
