r"""Prometheus remote write 1.0 by hand: its one protobuf message, in a snappy block.

Message: prometheus/prompb ``WriteRequest`` (https://prometheus.io/docs/specs/prw/remote_write_spec).
Snappy: a block may consist of literals only (google/snappy format_description.txt), which is not
compressed and saves a dependency; a push of a few hundred kilobytes at the end of a run can
afford that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_LITERAL = 0x10000  # the most that two bytes of length can say

Series = tuple[Mapping[str, str], Sequence[tuple[float, int]]]


def encode(series: Iterable[Series]) -> bytes:
    """A request of series: labels with ``__name__``, and (value, ms since the epoch) in order.

    >>> encode([({"__name__": "up"}, [(1.0, 5)])]).hex()
    '1ff41e000a1d0a0e0a085f5f6e616d655f5f12027570120b09000000000000f03f1005'
    """
    return _snappy(b"".join(_field(1, _time_series(*one)) for one in series))


def _time_series(labels: Mapping[str, str], samples: Sequence[tuple[float, int]]) -> bytes:
    """One TimeSeries. Labels must be sorted by name; an empty value is a label that is absent."""
    pairs = sorted((name, value) for name, value in labels.items() if value)
    return b"".join(
        [_field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in pairs]
        + [_field(2, _sample(value, at_ms)) for value, at_ms in samples]
    )


def _sample(value: float, at_ms: int) -> bytes:
    return _key(1, _FIXED64) + struct.pack("<d", value) + _key(2, _VARINT) + _varint(at_ms)


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Little-endian groups of seven bits; for values from 0 on.

    >>> _varint(300).hex()
    'ac02'
    """
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _snappy(content: bytes) -> bytes:
    """``content`` as one snappy block of literals; a literal's length is stored less one.

    >>> _snappy(b"abc").hex()
    '03f40200616263'
    """
    block = bytearray(_varint(len(content)))
    for start in range(0, len(content), _LITERAL):
        literal = content[start : start + _LITERAL]
        block += struct.pack("<BH", 61 << 2, len(literal) - 1) + literal
    return bytes(block)
