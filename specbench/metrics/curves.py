"""What a run says of each arm, in the form in which another run can be held against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench.estimate import Estimate, Severity
from specbench.metrics.acceptance import as_estimate, clustered, weakest
from specbench.metrics.arms import Arm, ArmKey
from specbench.metrics.figures import ALL, ArmResult, Figures
from specbench.metrics.speedup import paired
from specbench.metrics.stats import log_linear
from specbench.metrics.summary import Summary
from specbench.metrics.sums import RequestSums


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One conversation of an arm: tokens of its verify steps before trimming, and the steps."""

    workload: str
    prompt: str
    tokens: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One conversation in one block: decode time and tokens, plain and speculative."""

    workload: str
    prompt: str
    block: int
    plain_ns: int
    plain_tokens: int
    spec_ns: int
    spec_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One arm, or one category of it. ``survival`` is P(accepted >= i) from i = 1.

    ``units`` and ``timings`` are what accept length and speedup rest on, so that two runs can be
    paired by prompt.
    ``invalid`` are the codes of caveats under which no figure may be believed.
    """

    key: ArmKey
    category: str
    accept_length: Estimate | None
    survival: tuple[Estimate, ...]
    speedup: Estimate | None
    output_tok_s: Estimate | None
    lossless: str
    invalid: tuple[str, ...]
    units: tuple[Unit, ...]
    timings: tuple[Timing, ...]


def curves(summary: Summary, arms: Mapping[ArmKey, Arm]) -> tuple[Curve, ...]:
    """The curves of every arm and of its categories, in the order of the summary."""
    return tuple(
        _curve(result, figures, arms[result.key], _plain(summary, arms, result))
        for result in summary.arms
        for figures in (result.total, *result.categories)
    )


def by_key(found: Sequence[Curve]) -> Mapping[tuple[ArmKey, str], Curve]:
    """Curves by arm and category."""
    return {(curve.key, curve.category): curve for curve in found}


def _plain(summary: Summary, arms: Mapping[ArmKey, Arm], result: ArmResult) -> Arm | None:
    """What an arm is held against; None for plain decoding itself, and for its repetition."""
    baseline = summary.baseline_of(result.key.cell)
    return None if baseline is None or result.spec.is_baseline else arms[baseline.key]


def _curve(result: ArmResult, figures: Figures, arm: Arm, baseline: Arm | None) -> Curve:
    every = figures.category == ALL
    kept = [r for r in arm.requests if every or r.category == figures.category]
    invalid = [c.code for c in result.caveats if c.severity is Severity.INVALID]
    return Curve(
        key=result.key,
        category=figures.category,
        accept_length=None if result.spec.is_baseline else figures.accept_length,
        survival=() if result.spec.is_baseline else survival_estimates(kept),
        speedup=None if result.spec.is_baseline else figures.speedup,
        output_tok_s=figures.output_tok_s,
        lossless=result.lossless.verdict.value if result.lossless else "",
        invalid=tuple(dict.fromkeys(invalid)),
        units=() if result.spec.is_baseline else _units(kept),
        timings=_timings(baseline.requests, kept) if figures.speedup and baseline else (),
    )


def _timings(
    baseline: Sequence[RequestSums], requests: Sequence[RequestSums]
) -> tuple[Timing, ...]:
    sums: dict[tuple[str, str, int], list[int]] = {}
    for plain, spec in paired(baseline, requests):
        row = sums.setdefault((*spec.conversation, spec.block), [0, 0, 0, 0])
        for side, request in ((0, plain), (2, spec)):
            row[side] += request.decode_ns or 0
            row[side + 1] += request.decode_tokens or 0
    return tuple(
        Timing(
            workload=workload,
            prompt=prompt,
            block=block,
            plain_ns=row[0],
            plain_tokens=row[1],
            spec_ns=row[2],
            spec_tokens=row[3],
        )
        for (workload, prompt, block), row in sums.items()
    )


def _units(requests: Sequence[RequestSums]) -> tuple[Unit, ...]:
    """Sums by conversation; empty when accepted drafts were not counted."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for request in requests:
        if request.accepted is None or request.verify_steps is None:
            return ()
        tokens, steps = sums.get(request.conversation, (0, 0))
        sums[request.conversation] = (
            tokens + request.accepted + request.verify_steps,
            steps + request.verify_steps,
        )
    return tuple(
        Unit(workload=workload, prompt=prompt, tokens=tokens, steps=steps)
        for (workload, prompt), (tokens, steps) in sums.items()
    )


def survival_estimates(requests: Sequence[RequestSums]) -> tuple[Estimate, ...]:
    """P(accepted >= i) over all verify steps for i = 1, 2, ..., with intervals over prompts.

    Levels that were never reached are left out; empty without a histogram of each request.
    """
    if any(request.histogram is None for request in requests):
        return ()
    deepest = max((len(r.histogram or ()) - 1 for r in requests), default=0)
    found = (_survival(requests, level) for level in range(1, deepest + 1))
    return tuple(one for one in found if one is not None)


def _survival(requests: Sequence[RequestSums], level: int) -> Estimate | None:
    rows = clustered(requests, lambda r: (sum((r.histogram or ())[level:]), sum(r.histogram or ())))
    return as_estimate(log_linear(rows, (1, -1)), unit="share", evidence=weakest(requests))
