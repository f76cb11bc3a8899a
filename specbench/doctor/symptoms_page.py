"""A Prometheus page, and what its counters gained since an earlier one.

Missing is never zero: a series that a figure needs and that a page lacks is an error by name.
"""

from __future__ import annotations

import http.client
import math
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from specbench.errors import ConfigError, OutputError, UnreachableError
from specbench.serve_config import API_KEY_VARIABLE, api_key

MOST_COUNTED = 1e18
MOST_BYTES = 32 * 1024 * 1024
_LABELS = r'\{((?:[^"}]++|"(?:[^"\\]|\\.)*+")*+)\}'  # a quoted value may hold a brace
_LINE = re.compile(rf"^([a-zA-Z_:][\w:]*)(?:{_LABELS})?\s+(\S+)(?:\s+\S+)?(?:\s+#.*)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_IS_IT = "Is it the server's /metrics?"
Labels = frozenset[tuple[str, str]]
Samples = Mapping[str, Mapping[Labels, float]]


def read_page(place: str, *, timeout_s: float = 10.0) -> str:
    """The text of a file, or of a page by http or https.

    A key in ``SPECBENCH_API_KEY`` is sent as a bearer token, and not to where a server redirects.

    Raises:
        ConfigError: the key cannot be sent.
        OutputError: the file cannot be read or is too large.
        UnreachableError: nothing answers with a page.
    """
    try:
        scheme = urlsplit(place).scheme
    except ValueError as error:
        raise UnreachableError(f"{place} is no address: {error}.") from error
    if scheme in ("http", "https"):
        raw = _answer(place, timeout_s)
    else:
        try:
            with Path(place).open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise OutputError(
                f"{place} cannot be read: {error.strerror}.",
                expected="A file with Prometheus text, or http://HOST:PORT/metrics.",
            ) from error
    if len(raw) > MOST_BYTES:
        raise OutputError(f"{place} is larger than {MOST_BYTES} bytes.")
    return raw.decode("utf-8", errors="replace")


def _answer(place: str, timeout_s: float) -> bytes:
    key = api_key()
    try:
        request = urllib.request.Request(place)
        if key:
            request.add_unredirected_header("Authorization", f"Bearer {key}")
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # http(s)
            raw: bytes = answer.read(MOST_BYTES + 1)
            if answer.length and len(raw) <= MOST_BYTES:  # read() of a size says nothing of it
                raise http.client.IncompleteRead(raw, answer.length)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        refused = isinstance(error, urllib.error.HTTPError) and error.code in (401, 403)
        raise UnreachableError(
            f"{place} cannot be read: {error}.",
            todo=f"Set {API_KEY_VARIABLE} to its key." if refused else _IS_IT,
        ) from error
    return raw


def parse_page(text: str, place: str = "the page") -> Samples:
    """Finite samples by name and labels.

    >>> parse_page('a_total{position="1"} 3')
    {'a_total': {frozenset({('position', '1')}): 3.0}}

    Raises:
        OutputError: a sample is there twice, as in pages of two servers in one file.
    """
    found: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if line.startswith("#") or match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        of = found.setdefault(match[1], {})
        labels = frozenset(_LABEL.findall(match[2] or ""))
        if labels in of:
            raise OutputError(
                f"{place} has {match[1]} with the same labels twice.",
                expected="One page of one server.",
            )
        of[labels] = value
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The page at ``place``, and the earlier one at ``since`` that is subtracted.

    Counters are named without their ``_total``, which some servers leave out.
    """

    place: str
    page: Samples
    since: str | None = None
    before: Samples | None = None

    @classmethod
    def read(cls, place: str, since: str | None = None) -> Counters:
        """Errors as ``read_page``."""
        page = parse_page(read_page(place), place)
        before = parse_page(read_page(since), since) if since else None
        return cls(place=place, page=page, since=since, before=before)

    def has(self, name: str) -> bool:
        """Whether the page has a sample of this name."""
        return bool(_chosen(self.page, name, {}))

    def any_of(self, prefix: str) -> bool:
        """Whether any name on the page begins so."""
        return any(name.startswith(prefix) for name in self.page)

    def values(self, name: str, label: str, **given: str) -> set[str]:
        """What ``label`` is on the samples of ``name`` that carry ``given``."""
        chosen = _chosen(self.page, name, given)
        return {value for labels in chosen for key, value in labels if key == label}

    def gauges(self, name: str) -> tuple[float, ...]:
        """The values of a gauge, one per label set."""
        return tuple(self.page.get(name, {}).values())

    def gained(self, name: str, **given: str) -> int:
        """What the counter gained, over all samples that carry the labels ``given``.

        A sample that only the later page has began at 0 in between, as others of its name were
        there already: servers make them at the first request that has those labels.

        Raises:
            OutputError: a page lacks it.
            ConfigError: a value is no count, or fell.
        """
        now = _chosen(self.page, name, given)
        if not now:
            raise self.missing(name, **given)
        then = {} if self.before is None else _chosen(self.before, name, given)
        if self.before is not None and not then:
            raise OutputError(
                f"{self.since} lacks {_shown(name, given)}, and {self.place} has it.",
                expected="An earlier page of the same server, with every counter of the later one.",
                todo="Take it after the server has answered its first request, or leave --since "
                "out: counters then count from the server's start.",
            )
        for value in (*now.values(), *then.values()):
            if not 0 <= value < MOST_COUNTED:
                raise ConfigError(
                    f"{name} is {value:g}.", expected="A count.",
                    todo="Is this the server's own page?",
                )  # fmt: skip
        if any(now.get(labels, -1.0) < value for labels, value in then.items()):
            raise ConfigError(
                f"{_shown(name, given)} fell since the earlier page, or is gone.",
                todo="The server restarted; take both again.",
            )
        return round(sum(now.values()) - sum(then.values()))

    def check_beside(self, name: str, other: str, label: str) -> None:
        """Refuse a page on which ``name`` is counted for a value of ``label`` and ``other`` not.

        Raises:
            OutputError: names the series.
        """
        for place, page in ((self.place, self.page), (self.since or "", self.before or {})):
            own, beside = (
                {dict(labels).get(label, "") for labels in _chosen(page, of, {})}
                for of in (name, other)
            )
            for value in sorted(own - beside):
                given = {label: value} if value else {}
                raise replace(self, place=place).missing(other, **given)

    def missing(self, name: str, **given: str) -> OutputError:
        """The error that the page lacks a series."""
        return OutputError(
            f"{self.place} lacks {_shown(name, given)}.",
            expected="Each counter that the figure is made of: a missing one is not taken for 0.",
            todo="Is the page whole, and did the server answer a request?",
        )


def _chosen(page: Samples, name: str, given: Mapping[str, str]) -> Mapping[Labels, float]:
    found = page.get(f"{name}_total") or page.get(name, {})
    return {labels: value for labels, value in found.items() if given.items() <= labels}


def _shown(name: str, given: Mapping[str, str]) -> str:
    labels = ",".join(f'{key}="{value}"' for key, value in given.items())
    return f"{name}_total{{{labels}}}" if labels else f"{name}_total"
