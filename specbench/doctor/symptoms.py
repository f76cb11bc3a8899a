"""From counts to a shape, and from a shape to causes: engine-spec 10.1 and 10.3 as a procedure.

A shape is claimed only where intervals carry it. Thresholds come from heads that work: published
first positions of 0.62, 0.71 and 0.75, and conditional shares that keep at least 0.92 of the one
before (engine-spec 10.1; the vLLM and SGLang threads named there).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from specbench.doctor.findings import Fact, Finding, Severity
from specbench.doctor.symptoms_causes import causes_of
from specbench.doctor.symptoms_data import Observed, Part, Share

ONE = 1.02
HEALTHY_FIRST = 0.62
LOW_FIRST = 0.5
KEPT = 0.85
CLIFF = 0.3
PART_KEPT = 0.8


def diagnose(
    seen: Observed, *, expected: Sequence[float] = (), break_even: float | None = None
) -> tuple[Finding, ...]:
    """Findings in the order of the procedure; at least one.

    Args:
        seen: what was counted.
        expected: conditional acceptance by position that the draft should reach, from a probe or
            from training; without it published heads are the yardstick.
        break_even: accept length at which speculation starts to pay, when step costs are known.
    """
    found = [*_by_position(seen, expected), *_by_part(seen), *_speed(seen, break_even)]
    if not found:
        found = [_nothing(seen)]
    return tuple(found)


def _by_position(seen: Observed, expected: Sequence[float]) -> Iterator[Finding]:
    length, shares = seen.accept_length, seen.conditional
    if length is not None and length.below(ONE):
        yield _shape(
            "one",
            Severity.ERROR,
            f"Accept length {_told(length)}: hardly a draft is right",
            seen,
            1.0,
        )
        return
    if not shares:
        return
    if expected:
        yield from _against(seen, expected)
        return
    first = shares[0]
    drop = _drop(shares)
    if first.below(LOW_FIRST):
        yield _shape(
            "first",
            Severity.WARNING,
            f"The first draft is right in {_percent(first)}; heads that work reach "
            f"{100 * HEALTHY_FIRST:.0f} % or more",
            seen,
            0.8,
            "The counts alone cannot tell a poor first position from a draft that is weak "
            "throughout (flat): a probe's or a training's accuracy by --expect can.",
        )
    elif drop is not None:
        at, kept = drop
        cliff = " (a cliff: is it drafted in parallel?)" if kept < CLIFF else ""
        yield _shape(
            "tail",
            Severity.WARNING,
            f"Position {at} is right in {_percent(shares[at - 1])} after {_percent(shares[at - 2])}"
            f" at position {at - 1}{cliff}",
            seen,
            0.75,
        )


def _drop(shares: Sequence[Share]) -> tuple[int, float] | None:
    """First position whose share, at its highest, keeps under 85 % of the lowest one before."""
    for at, (before, here) in enumerate(itertools.pairwise(shares), start=2):
        if before.low is not None and here.high is not None and here.high < KEPT * before.low:
            return at, here.value / before.value
    return None


def _against(seen: Observed, expected: Sequence[float]) -> Iterator[Finding]:
    """Positions against what the draft should reach."""
    pairs = list(zip(seen.conditional, expected, strict=False))
    low = [share.below(want) for share, want in pairs]
    if not any(low):
        return
    ratios = [share.value / want if want else 1.0 for share, want in pairs]
    told = ", ".join(f"{s.value:.2f} of {w:.2f}" for s, w in pairs)
    if not low[0]:
        name, title = "tail", f"The first position is as expected, later ones are not: {told}"
    elif len(ratios) > 1 and ratios[1] < 0.5 * (1 + ratios[0]) and all(low):
        name, title = "flat", f"Every position is below what was expected: {told}"
    else:
        name, title = "first", f"The first position is below what was expected: {told}"
    yield _shape(name, Severity.WARNING, title, seen, 0.85)


def _by_part(seen: Observed) -> Iterator[Finding]:
    """Parts whose accept length differs: the draft tokens kept, so 1 is taken off first."""
    for by, name in (
        ("context", "long"),
        ("cycle", "cycle"),
        ("category", "category"),
        ("batch", "batch"),
    ):
        parts = seen.parts.get(by, ())
        pair = _lowest(parts, by) if len(parts) > 1 else None
        if pair is None:
            continue
        high, low = pair
        yield _shape(
            name,
            Severity.NOTE if name == "category" else Severity.WARNING,
            f"Accept length {_told(low.length)} at {by} {low.key}, {_told(high.length)} at {by} "
            f"{high.key}",
            seen,
            0.4 if name == "category" else 0.7,
        )


def _lowest(parts: Sequence[Part], by: str) -> tuple[Part, Part] | None:
    """The best part and the worst that is surely below it; for a range, the first and the last."""
    known = [p for p in parts if p.length.low is not None and p.length.high is not None]
    if len(known) < 2:
        return None
    if by == "category":
        high = max(known, key=lambda p: p.length.value)
        low = min(known, key=lambda p: p.length.value)
    elif by == "cycle":
        low, high = sorted(known, key=lambda p: p.length.value)
    else:
        high, low = known[0], known[-1]
    return (high, low) if _surely_below(low, high) else None


def _surely_below(low: Part, high: Part) -> bool:
    top, bottom = low.length.high, high.length.low
    return top is not None and bottom is not None and top - 1 < PART_KEPT * (bottom - 1)


def _speed(seen: Observed, break_even: float | None) -> Iterator[Finding]:
    length = seen.accept_length
    if break_even is None or length is None or not length.below(break_even):
        return
    yield Finding(
        code="speed.break_even",
        severity=Severity.WARNING,
        title=f"Accept length {_told(length)} is under break-even {break_even:.2f}: slower than "
        "plain decoding",
        evidence=(
            Fact(text=f"a verify step costs {break_even:.2f} plain ones", where=seen.source),
        ),
        remedy="Draft fewer tokens (specbench sweep finds the best), or lower the verify cost.",
        figures={"accept_length": length.value, "break_even": break_even},
        score=0.6,
    )


def _shape(
    name: str, severity: Severity, title: str, seen: Observed, score: float, besides: str = ""
) -> Finding:
    cause = causes_of(name)
    facts = [
        Fact(text=f"position {i}: {_percent(s)}", where=seen.source)
        for i, s in enumerate(seen.conditional, start=1)
    ]
    facts += [Fact(text=f"{n}. {why}", where="likely causes") for n, why in enumerate(cause.why, 1)]
    facts.append(Fact(text=seen.basis, where="intervals"))
    if besides:
        facts.append(Fact(text=besides, where="what it cannot tell"))
    figures = {f"conditional_{i}": s.value for i, s in enumerate(seen.conditional, start=1)}
    if seen.accept_length is not None:
        figures["accept_length"] = seen.accept_length.value
    return Finding(
        code=f"shape.{name}",
        severity=severity,
        title=title,
        evidence=tuple(facts),
        remedy=f"Next: {cause.test}",
        figures=figures,
        score=score,
    )


def _nothing(seen: Observed) -> Finding:
    shares = list(seen.conditional)
    known = shares and all(s.low is not None for s in shares[:1])
    length = seen.accept_length
    told = f"accept length {_told(length)}" if length is not None else "no accept length"
    if known:
        title = f"No shape of a fault shows in {told}"
        return _shape("none", Severity.NOTE, title, seen, 0.1)
    return _shape(
        "unsure", Severity.NOTE, f"Too little is known to claim a shape ({told})", seen, 0.1
    )


def _told(share: Share) -> str:
    if share.low is None or share.high is None:
        return f"{share.value:.2f}"
    return f"{share.value:.2f} ({share.low:.2f} to {share.high:.2f})"


def _percent(share: Share) -> str:
    if share.low is None or share.high is None:
        return f"{100 * share.value:.0f} %"
    return f"{100 * share.value:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"
