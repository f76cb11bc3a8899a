"""The sentences and number formats that every report shares."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.config import SpecConfig
from specbench.estimate import Estimate, Evidence, Severity
from specbench.metrics.arms import Cell
from specbench.metrics.best import Best, Outcome
from specbench.metrics.figures import ArmResult
from specbench.metrics.lossless import Verdict
from specbench.metrics.stats import LEAST_REQUESTS, LEAST_RUNS, RESAMPLES
from specbench.metrics.summary import Summary

MISSING = "–"
DOUBTS = ("within_noise_floor",)  # notes that take from a speedup as a warning does
BARS = "▁▂▃▄▅▆▇█"
EVIDENCE = {
    Evidence.STEPS: "seen step by step",
    Evidence.HISTOGRAM: "from the server's histogram of each request",
    Evidence.TOTALS: "from the server's totals of each request",
    Evidence.CHUNKS: "guessed from tokens per delivery",
    Evidence.NONE: "not seen",
}
INTERVALS = (
    f"Brackets hold the 95 % interval over prompts (symmetric studentised bootstrap, {RESAMPLES:,} "
    f"resamples; none under {LEAST_REQUESTS} prompts). That of a speedup is, from {LEAST_RUNS} "
    "blocks on, the wider of this and the one over blocks (Student's t where they are under "
    f"{LEAST_REQUESTS}); where every prompt ran in every block, it is the one over blocks. "
    f"{MISSING} means not measured."
)


def number(value: float | None, digits: int = 2) -> str:
    """A plain number, or the sign for a missing one.

    >>> number(3.14159), number(None)
    ('3.14', '–')
    """
    return MISSING if value is None else f"{value:,.{digits}f}"


def estimate(value: Estimate | None, digits: int = 2, *, unit: str = "") -> str:
    """A value with its unit and interval: ``1.94x [1.88, 2.01]``.

    >>> estimate(Estimate(value=1.94, low=1.88, high=2.01, n=30, unit="x",
    ...                   evidence=Evidence.STEPS), unit="x")
    '1.94x [1.88, 2.01]'
    """
    if value is None:
        return MISSING
    text = f"{number(value.value, digits)}{unit}"
    if value.low is None or value.high is None:
        return text
    return f"{text} [{number(value.low, digits)}, {number(value.high, digits)}]"


def settings(spec: SpecConfig) -> str:
    """A point in the words of its flags; what follows by itself is left out."""
    if spec.is_baseline:
        return "no speculation"
    text = f"num_steps={spec.num_steps} topk={spec.topk}"
    return text if spec.is_chain else f"{text} num_draft_tokens={spec.num_draft_tokens}"


def triple(spec: SpecConfig) -> str:
    """num_steps/topk/num_draft_tokens, for tables and axes."""
    return f"{spec.num_steps}/{spec.topk}/{spec.num_draft_tokens}"


def named(arm: ArmResult) -> str:
    """The point of an arm; plain decoding's second arm, the noise floor, says that it is one."""
    again = arm.key.point_id.endswith("-again")
    return f"{triple(arm.spec)} (again)" if again else triple(arm.spec)


def cell(where: Cell) -> str:
    """Workload, temperature and batch size."""
    return f"{where.workload}, temperature {where.temperature:g}, batch size {where.batch_size}"


def place(arm: ArmResult, summary: Summary) -> str:
    """Where a caveat applies: the point, and of its cell what is not the same everywhere."""
    cell, cells = arm.key.cell, [best.cell for best in summary.bests]
    text = named(arm)
    if len({other.batch_size for other in cells}) > 1:
        text += f" at batch size {cell.batch_size}"
    if len({other.temperature for other in cells}) > 1:
        text += f", temperature {cell.temperature:g}"
    if len({other.workload for other in cells}) > 1:
        text += f" on {cell.workload}"
    return text


def apart(where: Cell, cells: Sequence[Cell]) -> str:
    """A cell's batch size, and what else tells it from ``cells``: temperature and workload."""
    parts = [f"batch size {where.batch_size}"]
    if len({other.workload for other in cells}) > 1:
        parts.insert(0, where.workload)
    if len({other.temperature for other in cells}) > 1:
        parts.insert(-1, f"temperature {where.temperature:g}")
    return ", ".join(parts)


def verdict(best: Best, cells: Sequence[Cell] = ()) -> str:
    """The one line that a reader takes away from a cell, one of the run's ``cells``."""
    place = apart(best.cell, cells)
    if best.arm is None:
        return f"No point can be named best at {place}: {_why_none(best)}."
    total = best.arm.total
    point, speed = settings(best.arm.spec), estimate(total.speedup, unit="x")
    tail = f", accept length {number(total.accept_length.value if total.accept_length else None)}"
    if best.arm.lossless is not None:
        tail += f", {_outputs(best.arm.lossless.verdict)}"
    if doubts := _doubts(best):
        tail += f" (but see {', '.join(doubts)})"
    if best.outcome is Outcome.FASTER:
        return f"Best at {place}: {point}: {speed} faster{tail}."
    if best.outcome is Outcome.UNSURE:
        few = f"too few prompts ({total.speedup.n if total.speedup else 0}) for an interval"
        return f"Best at {place}: {point}: {speed} of plain speed ({few}){tail}."
    start = (
        f"Speculation is slower at {place}"
        if best.outcome is Outcome.SLOWER
        else f"No difference shown at {place}"
    )
    return f"{start}: the best point, {point}, decodes at {speed} of plain speed{tail}."


def _outputs(found: Verdict) -> str:
    """``exact``, or else what the word is about."""
    if found is Verdict.EXACT:
        return found.value
    return f"losslessness {found.value.replace('_', ' ')}"


def _doubts(best: Best) -> list[str]:
    """Codes that take from the verdict: the point's own, then those of what it is held against."""
    mine = best.arm.caveats if best.arm else ()
    theirs = best.plain.caveats if best.plain else ()
    own = [c.code for c in mine if c.severity is Severity.WARNING or c.code in DOUBTS]
    plain = [c.code for c in theirs if c.severity is not Severity.NOTE and c.code not in own]
    return list(dict.fromkeys([*own, *(f"{code} of plain decoding" for code in plain)]))


def _why_none(best: Best) -> str:
    if best.excluded:
        codes = ", ".join(sorted({code for _, code in best.excluded}))
        return f"every point with a speedup is invalid ({codes})"
    if not best.answered:
        return "no speculative point answered a request"
    return "no speedup was measured (see the caveats)"


def unfinished(summary: Summary) -> str:
    """That blocks are missing, where some are."""
    if summary.unfinished is None:
        return ""
    done, planned = summary.unfinished
    return (
        f"Unfinished: {done} of {planned} blocks were measured, and the figures are of these; "
        "--resume goes on with the rest."
    )


def tied(best: Best) -> str:
    """Which points share the best one's place; empty when none does."""
    if best.arm is None or not best.tied:
        return ""
    names = ", ".join(triple(arm.spec) for arm in best.tied)
    return f"A paired comparison does not tell it from {names} (num_steps/topk/num_draft_tokens)."


def decomposition(arm: ArmResult) -> str:
    """How the speedup comes about, in one line; empty where steps were not timed."""
    parts, speedup = arm.total.decomposition, arm.total.speedup
    if parts is None or speedup is None:
        return ""
    return (
        f"{parts.emitted_length:.2f} tokens per step x plain step {parts.plain_step_ms:.2f} ms / "
        f"speculative step {parts.spec_step_ms:.2f} ms = {parts.product:.2f}x; "
        f"break-even accept length {parts.break_even_accept_length:.2f}"
    )


def evidence(summary: Summary) -> str:
    """How acceptance and times were seen, once for all numbers; exceptions are caveats."""
    seen = [arm.total.evidence for arm in summary.arms if _speculated(arm)]
    what = "no speculative point answered a request"
    if seen:
        level = min(seen)
        what = f"{EVIDENCE[level]} ({level.name})"
    times = "at the client"
    if not all(arm.total.latency.tpot_exact for arm in summary.arms):
        times += (
            f"; times per token divide by n - 1 where a first delivery did not say what it held "
            f"({Evidence.CHUNKS.name})"
        )
    return f"Acceptance: {what}. Times: {times}."


def _speculated(arm: ArmResult) -> bool:
    return bool(arm.total.requests) and not arm.spec.is_baseline


def histogram(counts: Sequence[int] | None) -> str:
    """Share of steps by accepted drafts, one line; empty when not known.

    >>> histogram([2, 1, 1])
    'accepted drafts per step: 0 █ 50 %  1 ▅ 25 %  2 ▅ 25 %'
    """
    if not counts or not sum(counts):
        return ""
    total, top = sum(counts), max(counts)
    parts = [
        f"{accepted} {BARS[round((len(BARS) - 1) * count / top)]} {100 * count / total:.0f} %"
        for accepted, count in enumerate(counts)
    ]
    return "accepted drafts per step: " + "  ".join(parts)
