"""All verify steps of an arm as columns, for figures that cut across requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.columns import IntArray
from specbench.metrics.pool import Pool, numbered
from specbench.metrics.sums import RequestSums


@dataclass(frozen=True, slots=True, kw_only=True)
class StepColumns:
    """One entry per verify step; every array has shape (steps,).

    ``unit`` numbers the conversation, which is what an interval resamples. ``context`` is the
    sequence's length when the step began, ``output`` the output tokens that were there by then,
    ``cycle`` counts the request's steps from 1, ``turn`` its user turns from 1. ``units`` is the
    number of conversations.
    """

    units: int
    unit: IntArray
    context: IntArray
    output: IntArray
    cycle: IntArray
    turn: IntArray
    depth: IntArray
    accepted: IntArray


def step_columns(requests: Sequence[RequestSums]) -> StepColumns:
    """The steps of ``requests`` that were seen one by one; those of other requests are left out.

    Output position follows from the length at the request's first step, when the prefill's token
    was there.
    """
    seen = [request for request in requests if request.steps]
    counts = np.array([len(request.steps) for request in seen], dtype=np.int64)
    each, units = numbered([request.conversation for request in seen])
    turns = [request.trace.request.turn + 1 for request in seen]

    column = Pool(seen).steps
    context = column("committed")
    before = np.cumsum(counts) - counts
    return StepColumns(
        units=units,
        unit=np.repeat(each, counts),
        context=context,
        output=context - np.repeat(context[before], counts) + 1,
        cycle=np.arange(len(context), dtype=np.int64) - np.repeat(before, counts) + 1,
        turn=np.repeat(np.array(turns, dtype=np.int64), counts),
        depth=column("depth"),
        accepted=column("accepted"),
    )
