"""Does anyone else use the server? Its own counters against the tokens that came back to us.

A metrics page (Prometheus' text format) of vLLM, SGLang, llama.cpp or ourselves tells how many
requests run or wait, and how many tokens were generated since the server's start. Between blocks
nothing of ours is in flight; and more tokens than ours, beyond what servers count otherwise, are
someone else's.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from specbench.backends.speculation import MOST_COUNTED

# SGLang's gauges are left out: it sets them every 40 decoding steps, and once idle not before
# 30 s have passed, so that after a block they still show ours. Its count of tokens is up to date.
BUSY = frozenset(
    {
        "vllm:num_requests_running", "vllm:num_requests_waiting",
        "llamacpp:requests_processing", "llamacpp:requests_deferred",
        "specbench_requests_running", "specbench_requests_queued",
    }
)  # fmt: skip
GENERATED = frozenset(
    {
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
        "specbench_output_tokens_total",
    }
)
_POSITION = re.compile(
    r'^vllm:spec_decode_num_accepted_tokens_per_pos(?:_total)?\{.*?position="(\d+)"', re.MULTILINE
)
SLACK = 0.02
SLACK_PER_REQUEST = 2  # an end token that one side counts and the other does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Requests that run or wait now, and tokens generated so far; None where not told."""

    busy: int | None
    generated: int | None


def read_counters(page: str) -> Counters:
    """The counters of a metrics page, added up over their labels; what is no count is not told.

    >>> read_counters('vllm:num_requests_running{engine="0"} 2.0\\n# TYPE x counter\\n')
    Counters(busy=2, generated=None)
    """
    sums: dict[bool, float] = {}
    broken: set[bool] = set()
    for line in page.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in BUSY or name in GENERATED:
            try:
                value = float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
            except (ValueError, IndexError):
                continue
            if math.isnan(value):  # a gauge that has not been set
                continue
            if not 0 <= value < MOST_COUNTED:
                broken.add(name in BUSY)
            sums[name in BUSY] = sums.get(name in BUSY, 0.0) + value
    busy, generated = (
        round(sums[kind]) if kind in sums and kind not in broken else None for kind in (True, False)
    )
    return Counters(busy=busy, generated=generated)


def vllm_positions(page: str) -> int | None:
    """How many tokens vLLM drafts a step, 0 where it does not speculate; None where not told.

    The page has a counter for each draft position from the server's start, and with speculation
    off not even their description. Without statistics (``--disable-log-stats``) it has neither.

    >>> vllm_positions('vllm:generation_tokens_total{engine="0"} 0.0')
    0
    """
    found = set(_POSITION.findall(page))
    if found:
        return len(found)
    told = "\nvllm:generation_tokens_total" in f"\n{page}"
    return 0 if told and "spec_decode" not in page else None


class Traffic:
    """What came back to us since the first look, against what the server generated."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0
        self._tokens: int | None = 0
        self._requests = 0

    def answered(self, tokens: int | None) -> None:
        """One of our requests ended with ``tokens``; None (not known) ends the comparison."""
        self._requests += 1
        if tokens is None or self._tokens is None:
            self._tokens = None
        else:
            self._tokens += tokens

    def others(self, seen: Counters) -> str:
        """What shows that others use the server, in words; empty when nothing does.

        ``seen`` is from a moment when nothing of ours is in flight.
        """
        if seen.busy:
            return f"the server ran or held {seen.busy} requests while none of this run was sent"
        if seen.generated is None:
            return ""
        anew = self._first is None or seen.generated < self._last  # a server that was restarted
        self._last = seen.generated
        if self._first is None or anew:
            self._first, self._tokens, self._requests = seen.generated, 0, 0
            return ""
        if self._tokens is None:
            return ""
        made = seen.generated - self._first
        if made > self._tokens * (1 + SLACK) + SLACK_PER_REQUEST * self._requests:
            return f"the server generated {made} tokens while {self._tokens} came to this run"
        return ""
