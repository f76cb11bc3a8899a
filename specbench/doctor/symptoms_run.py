"""A run directory of ours as what the decision procedure reads, and two runs as a control."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from specbench.conclude import points_of
from specbench.config import SpecConfig
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.doctor.symptoms_causes import causes_of
from specbench.doctor.symptoms_data import Observed, Part, Share
from specbench.errors import ConfigError, OutputError
from specbench.estimate import Estimate
from specbench.metrics.acceptance import accept_length, clustered
from specbench.metrics.arms import Arm, gather
from specbench.metrics.breakdowns import Breakdown, breakdowns
from specbench.metrics.stats import log_linear
from specbench.metrics.sums import RequestSums
from specbench.store import RunDir

CONTROLS = ("graph", "batch", "rank", "cache", "template", "temperature", "quantisation")
NEXT = 4
_Z = 1.96


def read_run(path: Path, point: str | None = None) -> tuple[Observed, float | None]:
    """The deepest chain at the lowest temperature, over all batch sizes.

    A shallow one has no positions at which a tail could show. Of equally deep ones that with the
    most verify steps is taken. Without a chain a tree is: its conditional shares are those of its
    best branch.

    Args:
        path: the run directory.
        point: only this point, so that a control is read at the point of what it controls.

    Returns:
        What was counted, and the break-even accept length where step times are known.

    Raises:
        OutputError: the folder is no run, a block's point is not among its points, nothing in it
            drafted, or not at ``point``.
    """
    with RunDir.open(path) as run_dir:
        points = points_of(run_dir)
        arms = gather(run_dir.iter_runs())
    plain, drafting = _by_kind(path, arms.values(), points)
    if not drafting:
        raise OutputError(
            f"{path} holds no request that drafted, as far as was counted.",
            expected="A run with a point other than the baseline, and per-request counts.",
            todo="Of a server that gives none, judge its page: specbench doctor --metrics URL.",
        )
    known = sorted({arm.key.point_id for arm in drafting})
    drafting = [arm for arm in drafting if point in (None, arm.key.point_id)]
    if not drafting:
        raise OutputError(
            f"{path} did not draft at {point}, which is to be judged.",
            expected=f"One of {', '.join(known)}.",
            todo="A control differs in one thing alone: sweep the same point in both.",
        )
    best, kind = _deepest(drafting, points)
    chosen = [
        arm
        for arm in drafting
        if arm.key.point_id == best.key.point_id
        and arm.key.cell.temperature == best.key.cell.temperature
    ]
    seen = _observed(path, best.key.point_id, chosen)
    others = ", ".join(name for name in known if name != seen.point)
    why = "the one point that drafted"
    if others:
        why = "the point asked for" if point else f"the deepest {kind}; --point takes {others}"
    return replace(seen, chosen=why), _break_even(plain, chosen)


def _deepest(arms: Sequence[Arm], points: Mapping[str, SpecConfig]) -> tuple[Arm, str]:
    """The arm to judge of those at the lowest temperature, and whether it is a chain or a tree."""
    coldest = min(arm.key.cell.temperature for arm in arms)
    cold = [arm for arm in arms if arm.key.cell.temperature == coldest]
    chains = [arm for arm in cold if all(r.drafted == r.depth for r in arm.requests)]
    best = max(chains or cold, key=lambda a: (points[a.key.point_id].num_steps, _steps(a.requests)))
    return best, "chain" if chains else "tree"


def _by_kind(
    path: Path, arms: Iterable[Arm], points: Mapping[str, SpecConfig]
) -> tuple[list[Arm], list[Arm]]:
    """Arms of plain decoding, of which ``--noise-floor`` makes two, and those that drafted."""
    plain, drafting = [], []
    for arm in arms:
        spec = points.get(arm.key.point_id)
        if spec is None:
            raise OutputError(
                f"{path} holds blocks of {arm.key.point_id}, which its list of points lacks.",
                expected=f"Of {', '.join(points) or 'no points'}.",
                todo="Is run.json that of this run?",
            )
        if spec.is_baseline:
            plain.append(arm)
        elif _steps(arm.requests):
            drafting.append(arm)
    return plain, drafting


def _observed(path: Path, point: str, chosen: Sequence[Arm]) -> Observed:
    requests = tuple(r for arm in chosen for r in arm.requests)
    rows = breakdowns(requests)
    batches = {arm.key.cell.batch_size for arm in chosen}
    parts = {by: _parts(rows, by) for by in ("category", "context")}
    parts["cycle"] = _first_and_next(requests)
    if len(batches) > 1:
        parts["batch"] = tuple(
            Part(
                key=str(size),
                length=_share(accept_length(_of_batch(chosen, size))),
                steps=_steps(_of_batch(chosen, size)),
            )
            for size in sorted(batches)
        )
    conditional = tuple(
        Share(value=r.value, low=r.low, high=r.high) for r in rows if r.by == "conditional"
    )
    counted = len({r.conversation for r in requests})
    length = accept_length(requests)
    return Observed(
        source=f"{path.name}: {point}, temperature {chosen[0].key.cell.temperature:g}, "
        f"batch size{'s' if len(batches) > 1 else ''} {', '.join(map(str, sorted(batches)))}",
        basis=f"{_steps(requests)} steps of {counted} conversations, resampled by conversation",
        accept_length=None if length is None else _share(length),
        conditional=conditional,
        parts=parts,
        steps=_steps(requests),
        depth=len(conditional) or None,
        point=point,
    )


def _first_and_next(requests: Sequence[RequestSums]) -> tuple[Part, ...]:
    """Step 1 and steps 2 to 4 since the prefill, of the same requests.

    Later steps are left out: only requests that accept poorly have many, so acceptance seems to
    fall with every step even where nothing is wrong.
    """
    known = [r for r in requests if len(r.trace.steps) >= NEXT]
    parts = []
    for key, cut in (("1", slice(0, 1)), (f"2-{NEXT}", slice(1, NEXT))):
        rows = clustered(known, lambda r, cut=cut: _emitted(r, cut))  # type: ignore[misc]  # bound now
        interval = log_linear(rows, (1, -1)) if known else None
        if interval is not None:
            share = Share(value=interval.value, low=interval.low, high=interval.high)
            parts.append(Part(key=key, length=share, steps=int(rows[:, 1].sum())))
    return tuple(parts)


def _emitted(request: RequestSums, cut: slice) -> tuple[int, int]:
    steps = request.trace.steps[cut]
    return sum(step.accepted + 1 for step in steps), len(steps)


def _of_batch(arms: Iterable[Arm], size: int) -> tuple[RequestSums, ...]:
    return tuple(r for arm in arms if arm.key.cell.batch_size == size for r in arm.requests)


def _steps(requests: Iterable[RequestSums]) -> int:
    return sum(request.verify_steps or 0 for request in requests)


def _share(estimate: Estimate | None) -> Share:
    if estimate is None:
        return Share(value=math.nan)
    return Share(value=estimate.value, low=estimate.low, high=estimate.high)


def _parts(rows: Sequence[Breakdown], by: str) -> tuple[Part, ...]:
    return tuple(
        Part(key=r.key, length=Share(value=r.value, low=r.low, high=r.high), steps=r.steps)
        for r in rows
        if r.by == by
    )


def _break_even(plain: Iterable[Arm], chosen: Sequence[Arm]) -> float | None:
    """Step time of the chosen arms over that of plain decoding, at the smallest batch size."""
    arm = min(chosen, key=lambda a: a.key.cell.batch_size)
    beside = [a for a in plain if a.key.cell == arm.key.cell]
    own, base = _step_ns(arm.requests), _step_ns(r for a in beside for r in a.requests)
    return own / base if own and base else None


def _step_ns(requests: Iterable[RequestSums]) -> float | None:
    known = [(r.step_ns, r.verify_steps) for r in requests if r.step_ns and r.verify_steps]
    steps = sum(count for _, count in known)
    return sum(ns for ns, _ in known) / steps if steps else None


def check_control(seen: Observed, other: Observed, kind: str) -> Finding:
    """Two runs that differ in ``kind`` alone: is their accept length the same?

    Raises:
        ConfigError: an unknown kind.
    """
    if kind not in CONTROLS:
        raise ConfigError(f"--control {kind!r}.", expected=f"One of {', '.join(CONTROLS)}.")
    here, there = seen.accept_length, other.accept_length
    errors = [_error(share) for share in (here, there)]
    if here is None or there is None or None in errors:
        return _controlled(
            kind, Severity.NOTE, f"Control {kind}: too few requests to compare", seen, other
        )
    gap = here.value - there.value
    error = math.hypot(*(e for e in errors if e is not None))
    if abs(gap) <= _Z * error:
        told = f"Control {kind}: no difference shown ({gap:+.2f} ± {_Z * error:.2f})"
        return _controlled(kind, Severity.NOTE, told, seen, other)
    told = f"Control {kind}: accept length {here.value:.2f} against {there.value:.2f}"
    return _controlled(kind, Severity.WARNING, told, seen, other)


def _error(share: Share | None) -> float | None:
    if share is None or share.low is None or share.high is None:
        return None
    return (share.high - share.low) / (2 * _Z)


def _controlled(
    kind: str, severity: Severity, title: str, seen: Observed, other: Observed
) -> Finding:
    named = severity is Severity.WARNING and kind in ("graph", "batch", "rank")
    cause = causes_of(kind) if named else None
    facts = [Fact(text=o.basis, where=o.source) for o in (seen, other)]
    if cause is not None:
        facts += [Fact(text=f"{n}. {w}", where="likely causes") for n, w in enumerate(cause.why, 1)]
    return Finding(
        code=f"shape.{kind}" if named else "shape.control",
        severity=severity,
        title=title,
        evidence=tuple(facts),
        remedy=f"Next: {cause.test}" if cause else "",
        score=0.8 if severity is Severity.WARNING else 0.2,
    )
