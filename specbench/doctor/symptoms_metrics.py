"""Counters of vLLM, SGLang, TensorRT-LLM and llama.cpp from a Prometheus page (definitions.md c).

Counters run since the server started; with an earlier page the difference of the two is read.
"""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from specbench.doctor.symptoms_data import Observed, from_counts, from_gauge
from specbench.errors import ConfigError, OutputError, UnreachableError

MOST_COUNTED = 1e18
MOST_BYTES = 32 * 1024 * 1024
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+([^\s]+)(?:\s+\S+)?(?:\s+#.*)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Samples = dict[tuple[str, str], list[float]]


def read_page(place: str, *, timeout_s: float = 10.0) -> str:
    """The text of a file, or of a page by http or https.

    Raises:
        OutputError: the file cannot be read or is too large.
        UnreachableError: nothing answers with a page.
    """
    try:
        scheme = urlsplit(place).scheme
    except ValueError as error:
        raise UnreachableError(f"{place} is no address: {error}.") from error
    if scheme in ("http", "https"):
        try:
            with urllib.request.urlopen(place, timeout=timeout_s) as answer:  # http(s)
                raw: bytes = answer.read(MOST_BYTES + 1)
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise UnreachableError(
                f"{place} cannot be read: {error}.", todo="Is it the server's /metrics?"
            ) from error
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


def parse_page(text: str) -> Samples:
    """Finite samples by (name without _total, position), over all other labels.

    >>> parse_page('a_total{engine="0",position="1"} 3')
    {('a', '1'): [3.0]}
    """
    found: Samples = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if line.startswith("#") or match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        position = labels.get("position", labels.get("token_position", ""))
        key = (str(match[1]).removesuffix("_total"), str(position))
        if math.isfinite(value):
            found.setdefault(key, []).append(value)
    return found


def read_metrics(place: str, since: str | None = None) -> Observed:
    """What a server counted; gauges are used only where it has no counters.

    Raises:
        OutputError: the page holds no counter of speculation.
        ConfigError: counters that fell since the earlier page, or nothing drafted.
        UnreachableError: nothing answers.
    """
    page = parse_page(read_page(place))
    before = parse_page(read_page(since)) if since else {}
    for read in (_vllm, _sglang, _totals):
        seen = read(place, page, before)
        if seen is not None:
            return seen
    raise OutputError(
        f"{place} holds no counter of speculation.",
        expected="vllm:spec_decode_*, sglang:spec_*, trtllm_spec_decode_* or llamacpp:spec_*.",
        todo="Is speculation on, and is this the server's metrics page?",
    )


def _delta(
    page: Mapping[tuple[str, str], list[float]], before: Samples, name: str, position: str = ""
) -> int:
    """What a counter gained."""
    now, then = (seen.get((name, position), ()) for seen in (page, before))
    for value in (*now, *then):
        if not 0 <= value < MOST_COUNTED:
            raise ConfigError(
                f"{name} is {value:g}.", expected="A count.", todo="Is this the server's own page?"
            )
    gained = sum(now) - sum(then)
    if gained < 0:
        raise ConfigError(
            f"{name} fell since the earlier page.", todo="The server restarted; take both again."
        )
    return round(gained)


def _vllm(place: str, page: Samples, before: Samples) -> Observed | None:
    drafts, per = "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_accepted_tokens_per_pos"
    if (drafts, "") not in page:
        return None
    places = sorted((p for name, p in page if name == per and p.isdigit()), key=int)
    accepted = [_delta(page, before, per, p) for p in places]
    steps = _delta(page, before, drafts)
    if accepted or steps < 1:
        return from_counts(f"{place} (vLLM)", steps, accepted)
    total = _delta(page, before, "vllm:spec_decode_num_accepted_tokens")
    return from_gauge(f"{place} (vLLM)", 1 + total / steps, steps)


def _sglang(place: str, page: Samples, before: Samples) -> Observed | None:
    """(generated - requests) / verifies; the gauge, one per rank, covers one log interval only."""
    verifies = "sglang:spec_verify_calls"
    steps = _delta(page, before, verifies) if (verifies, "") in page else 0
    if steps:
        made = _delta(page, before, "sglang:generation_tokens")
        requests = _delta(page, before, "sglang:num_requests")
        return from_gauge(f"{place} (SGLang counters)", (made - requests) / steps, steps)
    gauge = page.get(("sglang:spec_accept_length", ""))
    if not gauge:
        return None
    mean = sum(gauge) / len(gauge)
    return from_gauge(f"{place} (SGLang gauge of the last log interval)", mean)


def _totals(place: str, page: Samples, before: Samples) -> Observed | None:
    """Drafted and accepted without a count of steps: a share, and no accept length."""
    for drafted, accepted in (
        ("trtllm_spec_decode_num_draft_tokens", "trtllm_spec_decode_num_accepted_tokens"),
        ("llamacpp:spec_tokens_drafted", "llamacpp:spec_tokens_accepted"),
    ):
        if (drafted, "") in page:
            given, kept = (_delta(page, before, name) for name in (drafted, accepted))
            if given < 1:
                raise ConfigError(f"{place}: nothing was drafted.", todo="Send requests first.")
            return Observed(
                source=place,
                basis=f"{kept} of {given} drafted tokens accepted ({100 * kept / given:.0f} %); "
                "without a count of steps there is no accept length",
                accept_length=None,
            )
    return None
