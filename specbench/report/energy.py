"""The report's table of what the GPUs did and took."""

from __future__ import annotations

from collections.abc import Iterable

from specbench.metrics.energy import GpuUse
from specbench.metrics.figures import ALL, ArmResult
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.document import Block, Heading, Table, Text


def energy(summary: Summary) -> Iterable[Block]:
    """Baseline and best point of each cell; nothing where no GPU was sampled."""
    rows = []
    for best in summary.bests:
        plain = summary.baseline_of(best.cell)
        for arm in (plain, best.arm):
            use = summary.gpu.get((arm.key, ALL)) if arm else None
            if arm is not None and use is not None:
                rows.append(_row(summary, arm, use, plain))
    if not rows:
        return
    yield Heading(text="GPU use and energy")
    yield Text(
        text="Energy is that of all GPUs in use over the windows in which it is known, idle power "
        "included; tokens are output tokens."
    )
    yield Table(
        columns=(
            "cell",
            "point",
            "GPU busy %",
            "power W",
            "J / token",
            "J / accepted draft",
            "energy of plain decoding per token",
        ),
        rows=tuple(rows),
        words=("cell", "point"),
    )


def _row(summary: Summary, arm: ArmResult, use: GpuUse, plain: ArmResult | None) -> tuple[str, ...]:
    base = summary.gpu.get((plain.key, ALL)) if plain and plain.key != arm.key else None
    saved = wording.MISSING
    if base is not None and base.j_per_token and use.j_per_token:
        saved = f"{base.j_per_token / use.j_per_token:.2f}x"
    return (
        wording.cell(arm.key.cell),
        wording.named(arm),
        wording.number(use.util_pct, 0),
        wording.number(use.power_w, 1),
        wording.number(use.j_per_token, 3),
        wording.number(use.j_per_accepted, 3),
        saved,
    )
