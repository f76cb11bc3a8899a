"""Where acceptance comes from: the same steps cut by position, prompt, context, time and turn.

==================  =====================================================  =====================
``by``              ``key``                                                ``value``
==================  =====================================================  =====================
unconditional       draft position i                                       P(a >= i)
conditional         draft position i                                       P(a >= i | a >= i - 1,
                                                                           depth >= i)
histogram           accepted drafts j                                      share of steps
request             request id                                             accept length
category            category of the prompt                                 accept length
context             tokens of prompt and output when the step began        accept length
output              output tokens when the step began                      accept length
cycle               step of its request, from 1                            accept length
turn                user turn of its conversation, from 1                  accept length
==================  =====================================================  =====================

Accept length is 1 + accepted / steps of the steps under that key (semantics.md 9). Intervals
resample conversations, since the steps of one are alike; there is none for a single request, nor
where under 12 conversations have a step under the key. Shares are cut at 1, lengths at 1 from
below. Ranges of keys double in width, because acceptance drifts over decades, not tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specbench.columns import IntArray
from specbench.estimate import Evidence
from specbench.metrics.pool import Pool
from specbench.metrics.stats import LEAST_REQUESTS, FloatArray, log_linear
from specbench.metrics.step_columns import StepColumns, step_columns
from specbench.metrics.sums import RequestSums

CONTEXT_FROM = 128
OUTPUT_FROM = 16
CYCLES_ALONE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One row: ``value`` under ``key``, from ``hits`` out of ``steps``; see the module's table.

    ``hits`` are accepted drafts for an accept length, steps for a share.
    """

    by: str
    key: str
    steps: int
    hits: int
    value: float
    low: float | None
    high: float | None
    unit: str


def breakdowns(requests: Sequence[RequestSums]) -> tuple[Breakdown, ...]:
    """Every row that the evidence of ``requests`` carries, in the order of the module's table.

    From histograms the rows by request, category and turn, positions and histogram are known; what
    hangs on a step's place needs STEPS. Nothing at all comes of weaker evidence.

    >>> from specbench.metrics.example import run_of, trace_of
    >>> from specbench.metrics.sums import complete_sums
    >>> rows = breakdowns(complete_sums([run_of(trace_of([3, 2, 0, 1], depth=3))]))
    >>> [(row.key, row.hits, row.steps) for row in rows if row.by == "conditional"]
    [('1', 3, 4), ('2', 2, 3), ('3', 1, 2)]
    """
    pool = Pool.of(requests)
    if pool.weakest < Evidence.HISTOGRAM or not pool.total("verify_steps"):
        return ()
    rows = [*_positions(pool), *_histogram(pool), *_by_request(pool)]
    if pool.weakest is Evidence.STEPS:
        rows += _by_place(step_columns(pool))
    rows += _by_turn(pool)
    return tuple(rows)


def _positions(pool: Pool) -> Iterable[Breakdown]:
    steps, levels = pool.counts("verify_steps"), range(1, pool.histograms.shape[1])
    reached = [pool.histograms[:, level:].sum(axis=1) for level in levels]
    for level, hits in zip(levels, reached, strict=True):
        yield from _row("unconditional", str(level), pool.add_up(hits, steps), share=True)
    if pool.weakest is Evidence.STEPS:
        for level, hits, risk in zip(levels, reached, pool.at_risk.T, strict=True):
            yield from _row("conditional", str(level), pool.add_up(hits, risk), share=True)


def _histogram(pool: Pool) -> Iterable[Breakdown]:
    steps = pool.counts("verify_steps")
    for accepted, hits in enumerate(pool.histograms.T):
        yield from _row("histogram", str(accepted), pool.add_up(hits, steps), share=True)


def _by_request(pool: Pool) -> Iterable[Breakdown]:
    for request in pool:
        hits, steps = request.accepted or 0, request.verify_steps or 0
        if steps:
            yield _length("request", request.trace.request.request_id, hits, steps)
    for category, found in pool.categories.items():
        yield from _row("category", category, _accepted(found), share=False)


def _by_turn(pool: Pool) -> Iterable[Breakdown]:
    turns = sorted({request.trace.request.turn for request in pool})
    for turn in turns:
        found = pool
        if len(turns) > 1:
            found = Pool(request for request in pool if request.trace.request.turn == turn)
        yield from _row("turn", str(turn + 1), _accepted(found), share=False)


def _accepted(pool: Pool) -> FloatArray:
    return pool.add_up(pool.counts("accepted"), pool.counts("verify_steps"))


def _by_place(steps: StepColumns) -> Iterable[Breakdown]:
    for by, values, first in (
        ("context", steps.context, CONTEXT_FROM),
        ("output", steps.output, OUTPUT_FROM),
        ("cycle", steps.cycle, 0),
    ):
        starts, bucket = _buckets(values, first)
        for index in range(len(starts)):
            inside = bucket == index
            columns = [
                np.bincount(steps.unit[inside], weights, minlength=steps.units)
                for weights in (steps.accepted[inside], None)
            ]
            rows = np.stack(columns, axis=1).astype(np.float64)
            yield from _row(by, _span(starts, index), rows, share=False)


def _buckets(values: IntArray, first: int) -> tuple[list[int], IntArray]:
    """Starts of the ranges, and the range of each value; ``first`` 0 keeps small values apart."""
    top = int(values.max())
    starts = [0] if first else list(range(1, CYCLES_ALONE + 1))
    edge = first or CYCLES_ALONE + 1
    while edge <= top:
        starts.append(edge)
        edge = 2 * edge if first else 2 * (edge - 1) + 1
    return starts, np.searchsorted(starts, values, side="right").astype(np.int64) - 1


def _span(starts: Sequence[int], index: int) -> str:
    if index + 1 == len(starts):
        return f"{starts[index]}+"
    last = starts[index + 1] - 1
    return str(last) if last == starts[index] else f"{starts[index]}-{last}"


def _row(by: str, key: str, rows: FloatArray, *, share: bool) -> Iterable[Breakdown]:
    """A row from (hits, steps) of each unit; for a length the bonus token is added to the hits."""
    hits, steps = (int(total) for total in rows.sum(axis=0))
    if steps == 0:
        return
    sums = rows if share else rows @ np.array([[1.0, 0.0], [1.0, 1.0]])
    known = int((rows[:, 1] > 0).sum()) >= LEAST_REQUESTS
    interval = log_linear(sums, (1, -1)) if known else None
    low = high = None
    if interval is not None and interval.low is not None and interval.high is not None:
        low = interval.low if share else max(1.0, interval.low)
        high = min(1.0, interval.high) if share else interval.high
    if not share:
        yield replace(_length(by, key, hits, steps), low=low, high=high)
        return
    yield Breakdown(
        by=by, key=key, steps=steps, hits=hits, value=hits / steps, low=low, high=high, unit="ratio"
    )


def _length(by: str, key: str, hits: int, steps: int) -> Breakdown:
    """An accept length without an interval."""
    return Breakdown(
        by=by,
        key=key,
        steps=steps,
        hits=hits,
        value=1 + hits / steps,
        low=None,
        high=None,
        unit="tokens/step",
    )
