"""Outputs that go round in circles: easy to draft, worthless to measure (semantics.md 20).

The measure is the share of 4-grams before EOS that occurred before in the same output. The
threshold was chosen on the labelled outputs of ``tests/unit/metrics/test_looping.py``: verse with
a refrain, JSON records, tables, number lists and repetitive code reach at most 0.41, the loops
start at 0.55. The share of distinct tokens does not separate them (digits and JSON repeat without
looping), so it is shown and not judged.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from specbench.metrics.stats import Interval, wilson
from specbench.metrics.sums import RequestSums
from specbench.trace import RequestTrace

GRAM = 4
LEAST_TOKENS = 24
REPEATED_4GRAMS = 0.5
LOOPING_OUTPUTS = 0.1


def repeated_share(tokens: Sequence[Hashable]) -> float | None:
    """Share of 4-grams that repeat an earlier one; None under 24 tokens, too short to tell.

    >>> repeated_share(list(range(40)))
    0.0
    >>> round(repeated_share([1, 2, 3] * 20), 2)
    0.95
    """
    if len(tokens) < LEAST_TOKENS:
        return None
    distinct = set(zip(*(tokens[i:] for i in range(GRAM)), strict=False))
    return 1 - len(distinct) / (len(tokens) - GRAM + 1)


def output_before_end(trace: RequestTrace, end_ids: Sequence[int] = ()) -> list[Hashable] | None:
    """The output up to its first end token: ids where known, else the words of the text.

    Args:
        trace: the request.
        end_ids: the model's end tokens; the request's own stop ids are added.
    """
    if trace.output_ids is None:
        words = trace.text.split()
        return list(words) if words else None
    ends = {*end_ids, *trace.request.sampling.stop_token_ids}
    kept: list[Hashable] = list(trace.output_ids)
    if ends.isdisjoint(trace.output_ids):
        return kept
    return kept[: next(at for at, token in enumerate(kept) if token in ends)]


def is_looping(trace: RequestTrace, end_ids: Sequence[int] = ()) -> bool | None:
    """True when half of the 4-grams or more repeat; None when the output cannot be judged."""
    tokens = output_before_end(trace, end_ids)
    share = None if tokens is None else repeated_share(tokens)
    return None if share is None else share >= REPEATED_4GRAMS


def looping_share(requests: Sequence[RequestSums], end_ids: Sequence[int] = ()) -> Interval | None:
    """Share of the outputs that can be judged which loop, with its interval; None without any."""
    judged = [is_looping(request.trace, end_ids) for request in requests]
    known = [verdict for verdict in judged if verdict is not None]
    return wilson(sum(known), len(known))


def looping_distinct_share(
    requests: Sequence[RequestSums], end_ids: Sequence[int] = ()
) -> float | None:
    """Distinct tokens ÷ tokens over the outputs that loop; shown beside them, never judged."""
    loops = [
        output_before_end(request.trace, end_ids) or []
        for request in requests
        if is_looping(request.trace, end_ids)
    ]
    total = sum(len(tokens) for tokens in loops)
    return sum(len(set(tokens)) for tokens in loops) / total if total else None
