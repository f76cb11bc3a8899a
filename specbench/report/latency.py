"""The latency tables of the report: three series that are never one, and what a reader meets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from specbench.metrics.arms import Cell
from specbench.metrics.figures import ArmResult
from specbench.metrics.reading import Reading
from specbench.metrics.stats import Interval
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.document import Block, Heading, Table, Text

LEAST_OF_P99 = 100  # requests


def latency(summary: Summary) -> Iterable[Block]:
    """Baseline and best point of each cell: latencies, then reading and goodput."""
    open_loop = summary.request_rate is not None
    shown = list(_shown(summary))
    yield Heading(text="Latency, ms p50 / p99")
    yield Table(
        columns=("cell", "point", "TTFT", "TPOT", "chunk gap", "end to end")
        + (("sent late by", "first token since due") if open_loop else ()),
        rows=tuple(_row(cell, arm, open_loop) for cell, arm in shown),
        words=("cell", "point"),
    )
    fewest = min((n for _, arm in shown if (n := arm.total.requests)), default=LEAST_OF_P99)
    if fewest < LEAST_OF_P99:
        yield Text(
            text=f"With {fewest} requests p99, and the slowest 1 in 100, is close to the slowest "
            "of them; chunk gaps are counted one by one."
        )
    yield from _reader(summary)


def _shown(summary: Summary) -> Iterator[tuple[Cell, ArmResult]]:
    for best in summary.bests:
        for arm in (summary.baseline_of(best.cell), best.arm):
            if arm is not None:
                yield best.cell, arm


def _row(cell: Cell, arm: ArmResult, open_loop: bool) -> tuple[str, ...]:
    seen = arm.total.latency
    pairs = [
        (seen.ttft_ms_p50, seen.ttft_ms_p99),
        (seen.tpot_ms_p50, seen.tpot_ms_p99),
        (seen.chunk_gap_ms_p50, seen.chunk_gap_ms_p99),
        (seen.end_to_end_ms_p50, seen.end_to_end_ms_p99),
    ]
    if open_loop:
        pairs.append((seen.lag_ms_p50, seen.lag_ms_p99))
        pairs.append((seen.response_ms_p50, seen.response_ms_p99))
    texts = (f"{wording.number(a)} / {wording.number(b)}" for a, b in pairs)
    return (wording.cell(cell), wording.named(arm), *texts)


def _reader(summary: Summary) -> Iterable[Block]:
    """Reader stall of each shown arm, with goodput where objectives are stated."""
    arms = list(_shown(summary))
    readings = [arm.reading for _, arm in arms if arm.reading is not None]
    if not readings and summary.objectives is None:
        return
    rate = next((seen.tok_s for seen in readings if seen.tok_s is not None), None)
    yield Text(
        text="A reader who starts at the first token and never waits reads at most the stall-free "
        "rate: of the median request, and of the slowest 1 in 100. Where the first token comes "
        "alone, that is at most one token per time of the first step, whatever later steps bring."
        + _left_out(arms)
    )
    columns = ["cell", "point", "stall-free tok/s p50 / p1"]
    if rate is not None:
        columns += [f"stalled s at {rate:g} tok/s", "requests that stall"]
    if summary.objectives is not None:
        columns += [f"goodput ({summary.objectives})", "good requests/s"]
    yield Table(
        columns=tuple(columns),
        rows=tuple(
            (
                wording.cell(cell),
                wording.named(arm),
                *_stalls(arm.reading, stated=rate is not None),
                *(_goodput(arm) if summary.objectives is not None else ()),
            )
            for cell, arm in arms
        ),
        words=("cell", "point"),
    )


def _left_out(arms: Sequence[tuple[Cell, ArmResult]]) -> str:
    """Which requests no reader can be followed in; empty when there is none."""
    seen = sum(arm.reading.requests if arm.reading else 0 for _, arm in arms)
    every = sum(arm.total.requests for _, arm in arms)
    if seen == every:
        return ""
    return (
        f" {every - seen} of {every} requests are not in it: their deliveries do not say how many "
        "tokens they hold."
    )


def _stalls(seen: Reading | None, *, stated: bool) -> tuple[str, ...]:
    if seen is None:
        return (wording.MISSING,) * (3 if stated else 1)
    free = f"{wording.number(seen.stall_free_p50, 1)} / {wording.number(seen.stall_free_p1, 1)}"
    if not stated:
        return (free,)
    return free, wording.number(seen.stalled_s, 3), f"{seen.stalled_requests} of {seen.requests}"


def _goodput(arm: ArmResult) -> tuple[str, str]:
    if arm.goodput is None:
        return wording.MISSING, wording.MISSING
    return share_text(arm.goodput.share), wording.number(arm.goodput.requests_s)


def share_text(share: Interval) -> str:
    """``95 % [88, 98]``.

    >>> share_text(Interval(value=0.95, low=0.88, high=0.981, n=60))
    '95 % [88, 98]'
    """
    text = f"{100 * share.value:.0f} %"
    if share.low is None or share.high is None:
        return text
    return f"{text} [{100 * share.low:.0f}, {100 * share.high:.0f}]"
