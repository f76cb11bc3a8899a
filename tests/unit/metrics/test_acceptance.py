import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.estimate import Evidence
from specbench.metrics import acceptance
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.sums import RequestSums, complete_sums, sums_of
from specbench.trace import RequestTrace, Usage

CHAINS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=6)


def requests(*accepted: list[int], depth: int = 3) -> tuple[RequestSums, ...]:
    traces = (trace_of(a, depth=depth, name=f"r{i}") for i, a in enumerate(accepted))
    return complete_sums([run_of(*traces)])


def with_usage(evidence: Evidence, usage: Usage) -> tuple[RequestSums, ...]:
    trace = dataclasses.replace(
        trace_of([3, 2, 0, 1], depth=3), steps=(), evidence=evidence, usage=usage
    )
    return (sums_of(trace),)


TOTALS = Usage(completion_tokens=11, verify_steps=4, drafted=12, accepted=6)


@given(CHAINS)
def test_pooled_is_step_weighted_mean_of_requests(accepted: list[list[int]]) -> None:
    found = requests(*accepted)
    pooled = acceptance.accept_length(found)
    steps = [len(a) for a in accepted]
    each = acceptance.request_accept_lengths(found)
    weighted = sum(length * v for length, v in zip(each, steps, strict=True)) / sum(steps)
    assert pooled is not None
    assert weighted == pytest.approx(pooled.value)


@given(CHAINS)
def test_survival_adds_up_and_conditional_multiplies(accepted: list[list[int]]) -> None:
    found = requests(*accepted)
    shares, chances = acceptance.survival(found), acceptance.conditional(found)
    assert shares is not None
    assert chances is not None
    flat = [a for request in accepted for a in request]
    assert sum(shares) == pytest.approx(sum(flat) / len(flat))
    product = 1.0
    for share, chance in zip(shares, chances, strict=True):
        product *= 0.0 if chance is None else chance
        assert product == pytest.approx(share)


def test_conditional_counts_only_steps_that_drafted_so_deep() -> None:
    # Two steps of depth 1 and 3; both accept all they have. Only the second could reach level 2.
    shallow, deep = trace_of([1], depth=1, name="A"), trace_of([3], depth=3, name="B")
    found = complete_sums([run_of(shallow, deep)])
    assert acceptance.survival(found) == (1.0, 0.5, 0.5)
    assert acceptance.conditional(found) == (1.0, 1.0, 1.0)


def test_conditional_is_none_where_no_step_got() -> None:
    assert acceptance.conditional(requests([0, 0])) == (0.0, None, None)


def test_emitted_length_is_after_trimming_and_accept_length_before() -> None:
    trace = trace_of([3, 3], depth=3)
    cut = dataclasses.replace(trace.steps[-1], emitted=1)
    trimmed = dataclasses.replace(
        trace, steps=(trace.steps[0], cut), usage=Usage(completion_tokens=6)
    )
    found = (sums_of(trimmed),)
    before, after = acceptance.accept_length(found), acceptance.emitted_length(found)
    assert before is not None
    assert after is not None
    assert (before.value, after.value) == (4.0, 2.5)


def test_rates_of_a_tree_differ() -> None:
    trace = trace_of([3, 2, 0, 1], depth=3, drafted=7)
    found = (sums_of(trace),)
    depth, node = acceptance.accept_rate_depth(found), acceptance.accept_rate_node(found)
    assert depth is not None
    assert node is not None
    assert (depth.value, node.value) == (6 / 12, 6 / 28)


def test_rate_of_zero_is_zero_not_missing() -> None:
    rate = acceptance.accept_rate_depth(requests([0, 0]))
    assert rate is not None
    assert rate.value == 0.0


def test_baseline_has_no_rate() -> None:
    found = requests([0, 0], depth=0)
    assert acceptance.accept_rate_depth(found) is None
    assert acceptance.accept_rate_node(found) is None
    assert acceptance.survival(found) == ()


def test_histogram_evidence() -> None:
    found = with_usage(Evidence.HISTOGRAM, dataclasses.replace(TOTALS, histogram=(1, 1, 1, 1)))
    length = acceptance.accept_length(found)
    assert length is not None
    assert (length.value, length.evidence) == (2.5, Evidence.HISTOGRAM)
    assert acceptance.conditional(found) == (0.75, 2 / 3, 0.5)
    assert acceptance.accept_rate_depth(found) is None
    assert acceptance.accept_rate_depth(found, chain=True) is not None


def test_histogram_of_uneven_depth_gives_no_conditional() -> None:
    usage = dataclasses.replace(TOTALS, histogram=(1, 1, 1, 1), drafted=9)
    found = with_usage(Evidence.HISTOGRAM, usage)
    assert acceptance.survival(found) is not None
    assert acceptance.conditional(found) is None


def test_totals_evidence() -> None:
    found = with_usage(Evidence.TOTALS, TOTALS)
    length = acceptance.accept_length(found)
    assert length is not None
    assert length.value == 2.5
    assert acceptance.histogram(found) is None
    assert acceptance.survival(found) is None


def test_drafts_without_steps_give_their_share_and_no_accept_length() -> None:
    """llama.cpp: draft_n and draft_n_accepted, no count of verify steps."""
    found = with_usage(Evidence.TOTALS, dataclasses.replace(TOTALS, verify_steps=None))
    rate = acceptance.accept_rate_node(found)
    assert rate is not None
    assert (rate.value, rate.evidence) == (6 / 12, Evidence.TOTALS)
    assert acceptance.accept_rate_depth(found, chain=True) == rate
    assert acceptance.accept_length(found) is None
    guess = acceptance.emitted_length(found)
    assert guess is not None
    assert guess.evidence is Evidence.CHUNKS
    mixed = (*found, *with_usage(Evidence.CHUNKS, Usage(completion_tokens=11)))
    assert acceptance.accept_rate_node(mixed) is None


def test_totals_without_accepted_give_only_emitted_length() -> None:
    found = with_usage(Evidence.TOTALS, Usage(completion_tokens=11, verify_steps=4))
    emitted = acceptance.emitted_length(found)
    assert acceptance.accept_length(found) is None
    assert emitted is not None
    assert emitted.value == 2.5


def test_chunks_evidence_guesses_from_deliveries() -> None:
    found = with_usage(Evidence.CHUNKS, Usage(completion_tokens=11))
    emitted = acceptance.emitted_length(found)
    assert acceptance.accept_length(found) is None
    assert emitted is not None
    assert (emitted.value, emitted.evidence) == (2.5, Evidence.CHUNKS)


def test_no_evidence_gives_nothing() -> None:
    found = with_usage(Evidence.NONE, TOTALS)
    assert acceptance.accept_length(found) is None
    assert acceptance.emitted_length(found) is None


def test_one_weak_request_weakens_the_arm() -> None:
    mixed = (*requests([3, 3]), *with_usage(Evidence.TOTALS, TOTALS))
    assert acceptance.weakest(mixed) is Evidence.TOTALS
    assert acceptance.histogram(mixed) is None


def test_turns_of_a_conversation_are_one_unit() -> None:
    def turn(index: int) -> RequestTrace:
        trace = trace_of([1, 2], depth=3)
        return dataclasses.replace(trace, request=dataclasses.replace(trace.request, turn=index))

    length = acceptance.accept_length([sums_of(turn(i)) for i in range(20)])
    assert length is not None
    assert (length.n, length.low) == (1, None)


def test_interval_stays_at_or_above_one() -> None:
    found = requests(*([[0] * 9 + [1]] + [[0] * 10] * 14))
    length = acceptance.accept_length(found)
    assert length is not None
    assert length.low == 1.0
