"""What the speedups rest on: the losslessness audit, the noise floor, the resolution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench.metrics.best import Best
from specbench.metrics.lossless import Lossless, Verdict
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
    arms = summary.of_cell(best.cell)
    exact = [arm.lossless.verdict is Verdict.EXACT for arm in arms if arm.lossless]
    effect = minimum_detectable_effect(best.arm.total.speedup) if best.arm else None
    parts = ["no arm could be held against plain decoding's outputs"]
    if exact:
        parts = [f"{sum(exact)} of {len(exact)} arms say exactly what plain decoding says"]
    if effect is not None:
        parts.append(
            f"a change of {effect:.1%} in the best point's speed would be found 4 times in 5"
        )
    floor = noise_floor(summary.noise.get(best.cell))
    if floor is not None:
        seen = wording.estimate(summary.noise[best.cell], 3, unit="x")
        parts.append(f"plain decoding against itself gives {seen}: a noise floor of {floor:.1%}")
    return wording.cell(best.cell), "; ".join(parts) + "."


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
