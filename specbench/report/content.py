"""What the written report says, block by block; every number comes from the summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench.estimate import Estimate
from specbench.grid import Dropped
from specbench.metrics.best import Best, fastest_for
from specbench.metrics.figures import ArmResult, Figures
from specbench.metrics.rows import validity
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.breakdowns import breakdowns
from specbench.report.document import Block, Heading, Picture, Table, Text
from specbench.report.energy import energy
from specbench.report.latency import latency
from specbench.report.ledger import ledger
from specbench.report.notes import caveats, not_run, reproduction
from specbench.report.trust import trust
from specbench.trace import Provenance

CAPTIONS = {
    "heatmap.png": "Speedup over the grid",
    "accept_length.png": "Accept length and speedup against num_steps, by category",
    "survival.png": "Where drafts are lost: survival and conditional acceptance by position",
    "step_time.png": "Where a step's time goes",
}


def content(
    summary: Summary,
    provenance: Provenance,
    *,
    dropped: Sequence[Dropped] = (),
    pictures: Sequence[str] = (),
) -> list[Block]:
    """The whole report.

    Args:
        summary: of the run.
        provenance: what is needed to repeat it.
        dropped: combinations of the grid that did not run, with reasons.
        pictures: image files that lie beside the report.
    """
    return [
        Heading(text="specbench report", level=1),
        *_head(summary),
        *_best_per_batch(summary),
        *_points(summary),
        *_categories(summary),
        *latency(summary),
        *energy(summary),
        *trust(summary),
        *breakdowns(summary),
        *_pictures(pictures),
        *caveats(summary),
        *not_run(summary, dropped),
        *ledger(summary),
        *reproduction(provenance),
    ]


def _head(summary: Summary) -> Iterable[Block]:
    best = summary.headline
    yield Text(text=wording.verdict(best, [one.cell for one in summary.bests]), strong=True)
    if missing := wording.unfinished(summary):
        yield Text(text=missing, strong=True)
    if best.arm is not None:
        parts = wording.decomposition(best.arm)
        if parts:
            yield Text(text=f"How it comes about: {parts}.")
        counts = wording.histogram(best.arm.total.histogram)
        if counts:
            yield Text(text=f"{counts[0].upper()}{counts[1:]}.")
    if tied := wording.tied(best):
        yield Text(text=tied)
    load = (
        "closed loop"
        if summary.request_rate is None
        else f"open loop at {summary.request_rate:g} requests/s"
    )
    no_draft = "not told" if summary.backend in ("openai", "sglang") else "none"
    yield Text(
        text=f"Target {summary.target}, draft {summary.draft or no_draft}, backend "
        f"{summary.backend}, {load}. {wording.evidence(summary)}"
    )


def _points(summary: Summary) -> Iterable[Block]:
    yield Heading(text="Points")
    yield Text(
        text="A point is num_steps/topk/num_draft_tokens. Speedup is paired decode time per token "
        "against 0/1/1. Break-even is the accept length that just pays for a step. tok/s counts "
        "every token over the whole window, prefill and waiting included, so speedup is not the "
        "ratio of two tok/s. Step ms is the mean over forwards at full batch. " + wording.INTERVALS
    )
    for best in summary.bests:
        yield Heading(text=wording.cell(best.cell), level=3)
        yield Table(
            columns=(
                "point",
                "accept length",
                "tok/s",
                "speedup",
                "break-even",
                "step ms = draft + extend + verify + other",
                "lossless",
                "validity",
            ),
            rows=tuple(_point_row(arm, best) for arm in summary.of_cell(best.cell)),
            words=("point", "lossless", "validity"),
        )


def _point_row(arm: ArmResult, best: Best) -> tuple[str, ...]:
    total, parts = arm.total, arm.total.decomposition
    name = wording.named(arm)
    if best.arm is not None and arm.key == best.arm.key:
        name += " (best)"
    return (
        name,
        wording.MISSING if arm.spec.is_baseline else wording.estimate(total.accept_length),
        wording.estimate(total.output_tok_s, 1),
        wording.estimate(total.speedup, unit="x"),
        wording.number(parts.break_even_accept_length if parts else None),
        _split(total),
        arm.lossless.verdict.value if arm.lossless else wording.MISSING,
        validity(arm.caveats).replace(";", ", "),
    )


def _split(seen: Figures) -> str:
    split = seen.split
    if split is None:
        return wording.MISSING
    parts = (split.draft_ms, split.extend_ms, split.verify_ms, split.other_ms)
    return f"{split.step_ms:.2f} = " + " + ".join(f"{part:.2f}" for part in parts)


def _best_per_batch(summary: Summary) -> Iterable[Block]:
    """Nothing for a single cell, of which the verdict says it all."""
    if len(summary.bests) == 1:
        return
    yield Heading(text="Best point per batch size")
    yield Table(
        columns=(
            "workload",
            "temperature",
            "batch size",
            "best point",
            "speedup",
            "accept length",
            "outcome",
            "not told apart from it",
        ),
        rows=tuple(
            (
                best.cell.workload,
                f"{best.cell.temperature:g}",
                str(best.cell.batch_size),
                wording.triple(best.arm.spec) if best.arm else wording.MISSING,
                wording.estimate(best.arm.total.speedup if best.arm else None, unit="x"),
                wording.estimate(best.arm.total.accept_length if best.arm else None),
                best.outcome.value.replace("_", " "),
                ", ".join(wording.named(arm) for arm in best.tied) or wording.MISSING,
            )
            for best in summary.bests
        ),
        words=("workload", "best point", "outcome", "not told apart from it"),
    )


def _categories(summary: Summary) -> Iterable[Block]:
    """The best point of the headline's cell, category by category."""
    arm = summary.headline.arm
    if arm is None or not arm.categories:
        return
    yield Heading(text=f"By category: {wording.settings(arm.spec)}")
    yield Table(
        columns=(
            "category",
            "requests",
            "accept length",
            "accepted / depth",
            "speedup",
            "TPOT ms p50",
            "survival by position",
            "its fastest point",
        ),
        rows=(
            *(
                _category_row(seen, arm, fastest_for(seen.category, summary.of_cell(arm.key.cell)))
                for seen in arm.categories
            ),
            _category_row(arm.total, arm, (arm, arm.total.speedup) if arm.total.speedup else None),
        ),
        words=("category", "survival by position", "its fastest point"),
    )


def _category_row(
    seen: Figures, shown: ArmResult, fastest: tuple[ArmResult, Estimate] | None
) -> tuple[str, ...]:
    """``fastest`` is given with its speedup where it is not the point that the table shows."""
    rate, name = seen.accept_rate_depth, wording.MISSING
    if fastest is not None:
        name = wording.triple(fastest[0].spec)
        if fastest[0].key != shown.key:
            name += f" {wording.estimate(fastest[1], unit='x')}"
    return (
        seen.category,
        str(seen.requests),
        wording.estimate(seen.accept_length),
        wording.MISSING if rate is None else f"{100 * rate.value:.0f} %",
        wording.estimate(seen.speedup, unit="x"),
        wording.number(seen.latency.tpot_ms_p50),
        " ".join(f"{share:.2f}" for share in seen.survival or ()) or wording.MISSING,
        name,
    )


def _pictures(files: Sequence[str]) -> Iterable[Block]:
    if files:
        yield Heading(text="Plots")
    for file in files:
        yield Picture(file=file, caption=CAPTIONS.get(file, file))
