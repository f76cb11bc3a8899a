"""Samples as lines of Prometheus' text format; the lines are those of OpenMetrics too.

Written here and not by a client library, since a page of a large sweep has tens of thousands of
lines of which one scrape changes two hundred: those of an arm are written once and kept until
the arm changes. Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and the
OpenMetrics 1.0 specification.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from specbench.collectors.catalogue import Kind, Series

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def labels(names: Sequence[str], values: Sequence[object]) -> str:
    r"""``name="value"`` pairs, escaped, without the braces.

    >>> print(labels(("arm", "point"), ("spec", 'a"b')))
    arm="spec",point="a\"b"
    """
    pairs = zip(names, values, strict=True)
    return ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs)


def sample(name: str, of: str, value: float) -> str:
    """One line.

    >>> sample("specbench_requests_running", "", 3)
    'specbench_requests_running 3\\n'
    """
    braced = f"{{{of}}}" if of else ""
    return f"{name}{braced} {value!r}\n"


def histogram(series: Series, of: str, counts: Sequence[int], total: float) -> Iterator[str]:
    """Lines of one histogram.

    Args:
        series: from the catalogue.
        of: labels, already written.
        counts: observations by bucket, not cumulated; the last one is beyond all bounds.
        total: the sum of all observations.
    """
    bounds = (*(repr(bound) for bound in series.buckets), "+Inf")
    for bound, below in zip(bounds, itertools.accumulate(counts), strict=True):
        yield f'{series.name}_bucket{{{of},le="{bound}"}} {below}\n'
    yield f"{series.name}_sum{{{of}}} {total!r}\n"
    yield f"{series.name}_count{{{of}}} {sum(counts)}\n"


def head(series: Series, *, openmetrics: bool) -> str:
    """HELP and TYPE of a family. OpenMetrics leaves the suffix out and knows the type info."""
    name, kind = series.name, series.kind.value
    if openmetrics and series.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    elif series.kind is Kind.INFO:
        name, kind = (name.removesuffix("_info"), kind) if openmetrics else (name, "gauge")
    about = series.help.translate(_HELP_ESCAPES)
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def page(families: Iterable[tuple[Series, Sequence[bytes]]], *, openmetrics: bool) -> bytes:
    """Families with their lines, one after another; those without a line are left out."""
    parts: list[bytes] = []
    for series, lines in families:
        if any(lines):
            parts.append(head(series, openmetrics=openmetrics).encode())
            parts.extend(lines)
    return b"".join(parts)
