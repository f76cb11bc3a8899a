"""What the speedups rest on: the losslessness audit, the noise floor, the resolution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench.metrics.best import Best
from specbench.metrics.lossless import SAMPLED_P, Lossless, Verdict
from specbench.metrics.power import minimum_detectable_effect, noise_floor
from specbench.metrics.stats import percentile, wilson
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.document import Block, Heading, Items, Table
from specbench.report.latency import share_text


def trust(summary: Summary) -> Iterable[Block]:
    """Losslessness of every arm that is not exact, and the resolution of each cell."""
    yield Heading(text="What the speedups rest on")
    yield Items(items=tuple(_resolution(summary, best) for best in summary.bests))
    rows = [
        _audit_row(wording.place(arm, summary), arm.lossless)
        for arm in summary.arms
        if arm.lossless is not None and arm.lossless.verdict is not Verdict.EXACT
    ]
    if rows:
        yield Table(
            columns=(
                "point",
                "verdict",
                "outputs that differ",
                "first at token (median)",
                "largest gap of the target's two best scores",
                "plain against plain",
                "why",
            ),
            rows=tuple(rows),
            words=("point", "verdict", "why"),
        )


def _resolution(summary: Summary, best: Best) -> tuple[str, str]:
    audits = [arm.lossless for arm in summary.of_cell(best.cell) if arm.lossless]
    effect = minimum_detectable_effect(best.arm.total.speedup) if best.arm else None
    parts = [_outputs(audits)]
    if effect is not None:
        parts.append(
            f"a change of {effect:.1%} in the best point's speed would be found 4 times in 5"
        )
    floor = noise_floor(summary.noise.get(best.cell))
    if floor is not None:
        seen = wording.estimate(summary.noise[best.cell], 3, unit="x")
        parts.append(f"plain decoding against itself gives {seen}: a noise floor of {floor:.1%}")
    return wording.cell(best.cell), "; ".join(parts) + "."


def _outputs(audits: Sequence[Lossless]) -> str:
    """How many arms say what plain decoding says, of those that could be held against it."""
    if tested := [seen.p for seen in audits if seen.p is not None]:
        differ = sum(p < SAMPLED_P for p in tested)
        return (
            "sampled outputs differ by design, so the frequencies of their tokens were compared: "
            f"they differ from plain decoding's in {differ} of {len(tested)} arms"
        )
    exact = [seen.verdict is Verdict.EXACT for seen in audits if seen.compared]
    if not exact:
        return "no arm could be held against plain decoding's outputs"
    return f"{sum(exact)} of {len(exact)} arms say exactly what plain decoding says"


def _audit_row(place: str, seen: Lossless) -> tuple[str, ...]:
    differ = wilson(seen.compared - seen.identical, seen.compared)
    control = wording.MISSING
    if seen.control_compared is not None and seen.control_identical is not None:
        parted = seen.control_compared - seen.control_identical
        control = f"{parted} of {seen.control_compared} differ"
    return (
        place,
        seen.verdict.value,
        wording.MISSING if differ is None else share_text(differ),
        wording.number(_median(seen.positions), 0),
        wording.MISSING if seen.largest_gap is None else f"{seen.largest_gap:.1e}",
        control,
        seen.reason,
    )


def _median(values: Sequence[int]) -> float | None:
    return percentile([float(value) for value in values], 50)
