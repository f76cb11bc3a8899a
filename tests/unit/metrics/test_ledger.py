import dataclasses

from specbench.config import SpecConfig
from specbench.estimate import Evidence
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.ledger import ledger_totals
from specbench.metrics.sums import complete_sums, sums_of
from specbench.trace import Chunk, Usage


def test_denominators_come_from_the_point_or_from_what_was_seen() -> None:
    found = complete_sums([run_of(trace_of([1, 0], depth=2, drafted=5))])
    seen = ledger_totals(found, None)
    told = ledger_totals(found, SpecConfig(num_steps=3, topk=4, num_draft_tokens=8))
    assert seen is not None
    assert told is not None
    assert (seen.depth, seen.nodes) == (2, 5)
    assert (told.depth, told.nodes) == (3, 7)


def test_deliveries_that_do_not_add_up_are_not_used() -> None:
    trace = trace_of([1, 0], depth=2)
    vague = dataclasses.replace(trace, chunks=(*trace.chunks, Chunk(at_ns=99, tokens=3)))
    totals = ledger_totals([sums_of(vague)], None)
    assert totals is not None
    assert totals.chunks is None


def test_weak_evidence_gives_no_ledger() -> None:
    trace = dataclasses.replace(
        trace_of([1], depth=1), steps=(), evidence=Evidence.CHUNKS, usage=Usage(completion_tokens=3)
    )
    assert ledger_totals([sums_of(trace)], None) is None
    assert ledger_totals([], None) is None


def test_mean_leaves_out_requests_without_steps() -> None:
    found = complete_sums([run_of(trace_of([1, 1], depth=1), trace_of([], depth=1, name="B"))])
    totals = ledger_totals(found, None)
    assert totals is not None
    assert totals.mean(lambda i: totals.accepted[i]) == 2
