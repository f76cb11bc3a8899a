"""Goodput: the share of requests that met every stated objective, and how many a second did.

=============== ======== =======================================================================
code            severity when
=============== ======== =======================================================================
goodput_unknown warning  it hangs on the time per token of requests whose tokens nobody counted
=============== ======== =======================================================================

A request that failed, was cut or never answered met nothing: leaving it out would make an
overloaded server look good. On a schedule (open loop) its first token is timed from when it was
*due*, so that a client or server that falls behind cannot hide the wait (coordinated omission).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specbench.errors import ConfigError
from specbench.estimate import Caveat, Severity
from specbench.metrics.arms import Arm
from specbench.metrics.latency import NS_PER_MS, tpot_ns
from specbench.metrics.stats import Interval, wilson
from specbench.metrics.sums import RequestSums

NS_PER_S = 1e9
NAMES = ("ttft", "tpot", "e2e")
_UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Longest allowed time to first token, time per output token and whole request, in ms."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def __str__(self) -> str:
        given = zip(NAMES, (self.ttft_ms, self.tpot_ms, self.e2e_ms), strict=True)
        return ", ".join(f"{name} <= {ms:g} ms" for name, ms in given if ms is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """``share`` of requests that met the objectives (Wilson), and those per second of the run."""

    share: Interval
    requests_s: float | None


def parse_objectives(text: str) -> Objectives:
    """Read ``ttft=200ms,tpot=30ms,e2e=2s``.

    >>> str(parse_objectives("ttft=0.2s,tpot=30ms"))
    'ttft <= 200 ms, tpot <= 30 ms'

    Raises:
        ConfigError: an unknown name, a repeated one, or no positive time with its unit.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in NAMES or name in found:
            raise ConfigError(
                f"--slo {text}: {name!r} is {'given twice' if name in found else 'unknown'}.",
                expected=f"{', '.join(NAMES)}, each once: ttft=200ms,tpot=30ms.",
            )
        found[name] = _ms(value, text)
    return Objectives(**{f"{name}_ms": ms for name, ms in found.items()})


def check_latency(slo: str | None, reader_tok_s: float | None) -> None:
    """Refuse ``--slo`` and ``--reader-rate`` that say nothing, before anything runs.

    Raises:
        ConfigError: as :func:`parse_objectives`, or the reader reads nothing.
    """
    if slo is not None:
        parse_objectives(slo)
    if reader_tok_s is not None and not 0 < reader_tok_s < math.inf:
        raise ConfigError(f"--reader-rate {reader_tok_s}.", expected="Tokens per second.")


def _ms(value: str, text: str) -> float:
    for unit in ("us", "ms", "s"):
        if value.endswith(unit):
            try:
                ms = float(value.removesuffix(unit)) * _UNITS_MS[unit]
            except ValueError:
                break
            if 0 < ms < float("inf"):
                return ms
    raise ConfigError(f"--slo {text}: {value!r} is no time.", expected="A number with us, ms or s.")


def goodput(
    arm: Arm, objectives: Objectives | None, *, open_loop: bool
) -> tuple[Goodput | None, tuple[Caveat, ...]]:
    """How many of the measured requests of ``arm`` met ``objectives``, and what to hold against it.

    A request whose tokens all came at once has no time per token, and meets that objective.

    Returns:
        None for the goodput without objectives or requests, and, with the reason as a caveat, where
        it cannot be told of a request whether it met them.
    """
    if objectives is None:
        return None, ()
    verdicts = [_met(request, objectives, open_loop) for request in arm.requests]
    if None in verdicts:
        text = (
            f"of {verdicts.count(None)} of {len(verdicts)} requests the output tokens are not "
            f"known, so that {Objectives(tpot_ms=objectives.tpot_ms)} may be met or not: no "
            "goodput is given"
        )
        return None, (Caveat(code="goodput_unknown", severity=Severity.WARNING, text=text),)
    met = verdicts.count(True)
    share = wilson(met, len(arm.measured))
    seconds = sum(run.wall_ns for run in arm.runs) / NS_PER_S
    if share is None:
        return None, ()
    return Goodput(share=share, requests_s=met / seconds if seconds > 0 else None), ()


def _met(request: RequestSums, objectives: Objectives, open_loop: bool) -> bool | None:
    """Whether a request met every objective; None where only its time per token is not known."""
    if request.first_ns is None or request.last_ns is None:
        return False
    start = request.trace.due_ns if open_loop else request.trace.sent_ns
    whole = (
        (request.first_ns - start, objectives.ttft_ms),
        (request.last_ns - start, objectives.e2e_ms),
    )
    if not all(_within(ns, limit) for ns, limit in whole):
        return False
    if objectives.tpot_ms is None or _came_at_once(request):
        return True
    tpot = tpot_ns(request)
    return None if tpot is None else _within(tpot, objectives.tpot_ms)


def _came_at_once(request: RequestSums) -> bool:
    """True for a single delivery, and for later ones that brought no token: no time per token."""
    return request.decode_ns is None or request.decode_tokens == 0


def _within(ns: float, limit_ms: float | None) -> bool:
    return limit_ms is None or ns <= limit_ms * NS_PER_MS
