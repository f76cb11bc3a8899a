"""What was counted of a server or a run, in the one form that the decision procedure reads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specbench.errors import ConfigError
from specbench.metrics.stats import wilson

# Steps of one request go together, so counts without requests are worth fewer independent ones:
# variance by request over binomial variance was 1.1 to 11.8 in a sweep of the shipped pair
# (docs/doctor.md); the upper end is taken.
DESIGN_EFFECT = 12.0
LEAST = 12
MOST_STEPS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A figure with its 95 % interval; ``low`` and ``high`` are None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None

    def below(self, limit: float) -> bool:
        """The whole interval lies below ``limit``; False without an interval."""
        return self.high is not None and self.high < limit

    def above(self, limit: float) -> bool:
        """The whole interval lies above ``limit``; False without an interval."""
        return self.low is not None and self.low > limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Accept length of the steps under one key: a category, a range of context, a step since
    prefill, a batch size."""

    key: str
    length: Share
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Accept length, conditional acceptance by position, and its parts.

    ``conditional[i - 1]`` is P(a >= i | a >= i - 1). ``parts`` go by category, context, cycle and
    batch. ``source`` says what was counted and ``basis`` what the intervals rest on. ``point`` is
    the id of a run's point; None for what is no run. ``chosen`` says why that point was judged.
    """

    source: str
    basis: str
    accept_length: Share | None
    conditional: tuple[Share, ...] = ()
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    steps: int | None = None
    depth: int | None = None
    point: str | None = None
    chosen: str = ""


def from_numbers(
    accept_length: float | None, per_position: Sequence[float], steps: int | None
) -> Observed:
    """A few numbers that a log prints; ``per_position`` is survival, P(a >= i), as vLLM has it.

    Without ``steps`` there are no intervals, and no shape can be claimed.

    Raises:
        ConfigError: numbers that no run can give, or that contradict each other.
    """
    shares = list(per_position)
    if any(not (math.isfinite(s) and 0 <= s <= 1) for s in shares):
        raise ConfigError(f"--per-position {shares}.", expected="Shares from 0 to 1.")
    if any(later > earlier for earlier, later in itertools.pairwise(shares)):
        raise ConfigError(
            f"--per-position {shares} rises.",
            expected="Shares of all steps that accepted at least i drafts, which cannot rise.",
            todo="Conditional shares multiply up to these.",
        )
    implied = 1 + sum(shares) if shares else None
    if accept_length is not None and not (math.isfinite(accept_length) and accept_length >= 1):
        raise ConfigError(f"--accept-length {accept_length}.", expected="At least 1.")
    if accept_length is not None and implied is not None and abs(accept_length - implied) > 0.1:
        raise ConfigError(
            f"--accept-length {accept_length} and --per-position {shares} contradict each other: "
            f"1 + their sum is {implied:.2f}.",
            todo="Take both from the same log line; accept length counts the bonus token.",
        )
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        given = str(steps) if steps < 1 else "is too large"
        raise ConfigError(f"--steps {given}.", expected=f"1 to {MOST_STEPS:,} verify steps.")
    counts = [round(s * steps) for s in shares] if steps else []
    length = accept_length if accept_length is not None else implied
    return Observed(
        source="numbers given",
        basis=_basis(steps),
        accept_length=None if length is None else _length(length, counts, steps),
        conditional=_conditional(counts, steps) if steps else _bare(shares),
        steps=steps,
        depth=len(shares) or None,
    )


def from_counts(source: str, drafts: int, accepted: Sequence[int]) -> Observed:
    """Counters: steps that drafted, and steps that accepted at least 1, 2, ... of them.

    Raises:
        ConfigError: nothing was drafted, or the counts cannot be of one run.
    """
    if drafts < 1:
        raise ConfigError(f"{source}: no step drafted anything.", todo="Send requests first.")
    counts = [drafts, *accepted]
    if any(later > earlier for earlier, later in itertools.pairwise(counts)):
        raise ConfigError(
            f"{source}: accepted per position {list(accepted)} of {drafts} steps rises.",
            todo="Were the counters reset between two scrapes?",
        )
    return Observed(
        source=source,
        basis=_basis(drafts),
        accept_length=_length(1 + sum(accepted) / drafts, accepted, drafts),
        conditional=_conditional(accepted, drafts),
        steps=drafts,
        depth=len(accepted) or None,
    )


def from_gauge(source: str, length: float, steps: int | None = None) -> Observed:
    """An accept length alone: no positions and no interval, so no shape can be claimed.

    Raises:
        ConfigError: it is below 1 or no number.
    """
    if not (math.isfinite(length) and length >= 1):
        raise ConfigError(f"{source}: accept length {length}.", expected="At least 1.")
    return Observed(
        source=source,
        basis="an accept length alone: no positions and no interval",
        accept_length=Share(value=length),
        steps=steps,
    )


def _basis(steps: int | None) -> str:
    if steps is None:
        return "no number of steps is known, so there are no intervals"
    return (
        f"{steps} steps; as requests are not told apart, they count as {steps / DESIGN_EFFECT:.0f} "
        "independent ones"
    )


def _bare(shares: Sequence[float]) -> tuple[Share, ...]:
    before = [1.0, *shares]
    return tuple(Share(value=s / b) for s, b in zip(shares, before, strict=False) if b > 0)


def _conditional(counts: Sequence[int], steps: int) -> tuple[Share, ...]:
    """n_i / n_{i-1}, with Wilson's interval on the effective counts."""
    found, before = [], steps
    for hits in counts:
        if before == 0:
            break
        found.append(_wilson(hits / before, before))
        before = hits
    return tuple(found)


def _wilson(share: float, trials: int) -> Share:
    n = int(trials / DESIGN_EFFECT)
    interval = wilson(round(share * n), n)
    if interval is None or interval.low is None or interval.high is None:
        return Share(value=share)
    return Share(value=share, low=min(interval.low, share), high=max(interval.high, share))


def _length(value: float, counts: Sequence[int], steps: int | None) -> Share:
    """Accept length; its variance follows from the survival counts (accepted is their sum)."""
    if not steps or not counts or steps / DESIGN_EFFECT < LEAST:
        return Share(value=value)
    mean = sum(counts) / steps
    square = sum((2 * i + 1) * n for i, n in enumerate(counts)) / steps
    error = math.sqrt(max(square - mean * mean, 0.0) * DESIGN_EFFECT / steps)
    # of an event never seen, up to 3 in n may happen (the rule of three)
    unseen = 3 * DESIGN_EFFECT / steps if mean == 0 else 0.0
    return Share(
        value=value, low=max(1.0, value - 1.96 * error), high=value + 1.96 * error + unseen
    )
