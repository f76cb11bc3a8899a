"""The outputs that the report page shows: drafts accepted and rejected and the bonus, by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench.metrics.summary import Summary
from specbench.metrics.sums import is_complete
from specbench.trace import ArmRun, RequestTrace

PER_CATEGORY = 3
MOST_OUTPUTS = 24
MOST_STEPS = 200
MOST_PROMPT = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """One delivery with the verify step behind it.

    ``accepted`` drafts, then the bonus token; ``emitted`` of them reached the user (fewer when a
    stop cut the step); ``depth`` is how deep was drafted. The prefill's token has depth None.
    ``rejected`` is what the drafts after the accepted ones said, None where it was not kept.
    """

    text: str
    emitted: int | None
    accepted: int
    depth: int | None
    rejected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOutput:
    """One request of the best arm. ``cut`` counts the steps that are not shown.

    ``tokens``, ``verify_steps`` and ``accepted`` are of the whole request, shown or not.
    """

    point: str
    request_id: str
    category: str
    prompt: str
    finish: str
    tokens: int
    verify_steps: int
    accepted: int
    steps: tuple[ShownStep, ...]
    cut: int


def shown_outputs(summary: Summary, runs: Sequence[ArmRun]) -> tuple[ShownOutput, ...]:
    """The first outputs of each category of the headline's best arm, or of its baseline.

    Only requests whose every step was seen and came in a delivery of its own can be shown.
    """
    best = summary.headline.arm or summary.baseline_of(summary.headline.cell)
    if best is None:
        return ()
    cell, found, seen = best.key.cell, [], dict[str, int]()
    for run in runs:
        of_run = (run.workload, run.batch_size, run.temperature)
        if run.point_id != best.key.point_id or of_run != (
            cell.workload,
            cell.batch_size,
            cell.temperature,
        ):
            continue
        for trace in run.requests:
            category = trace.request.category
            if seen.get(category, 0) < PER_CATEGORY and (shown := _shown(run.point_id, trace)):
                seen[category] = seen.get(category, 0) + 1
                found.append(shown)
    return tuple(sorted(found, key=lambda one: one.category)[:MOST_OUTPUTS])


def can_be_shown(trace: RequestTrace) -> bool:
    """True for a complete request each of whose steps came in a delivery of its own."""
    return is_complete(trace) and len(trace.chunks) == len(trace.steps) + 1


def _shown(point: str, trace: RequestTrace) -> ShownOutput | None:
    if not can_be_shown(trace):
        return None
    first, *later = trace.chunks
    steps = [ShownStep(text=first.text, emitted=first.tokens, accepted=0, depth=None)]
    kept = trace.rejected
    texts = [one.text for one in kept] if kept else [None for _ in later]
    steps += [
        ShownStep(
            text=chunk.text,
            emitted=step.emitted,
            accepted=step.accepted,
            depth=step.depth,
            rejected=text,
        )
        for chunk, step, text in zip(later, trace.steps, texts, strict=True)
    ]
    asked = trace.request
    text = asked.messages[-1].content if asked.messages else asked.prompt or ""
    return ShownOutput(
        point=point,
        request_id=trace.request.request_id,
        category=trace.request.category,
        prompt=text[:MOST_PROMPT] + ("…" if len(text) > MOST_PROMPT else ""),
        finish=trace.finish.value,
        tokens=sum(step.emitted or 0 for step in steps),
        verify_steps=len(steps) - 1,
        accepted=sum(step.accepted for step in steps),
        steps=tuple(steps[:MOST_STEPS]),
        cut=max(len(steps) - MOST_STEPS, 0),
    )
