"""Hypothesis strategies for what a run may hold, odd values included."""

from __future__ import annotations

from hypothesis import strategies as st

from specbench.request import Message, Request, SamplingParams
from specbench.trace import ArmRun, Chunk, Evidence, Finish, RequestTrace, StepTrace, Usage

small = st.integers(0, 2**31 - 1)
nanoseconds = st.integers(-(2**61), 2**61)  # a difference of two fits 64 bits
any_text = st.text(st.characters(exclude_categories=()), max_size=8)


@st.composite
def steps(draw: st.DrawFn) -> StepTrace:
    drafted = draw(st.integers(0, 9))
    depth = draw(st.integers(0, drafted))
    accepted = draw(st.integers(0, depth))
    return StepTrace(
        batch_step=draw(st.integers(0, 2**60)),
        batch=draw(small),
        committed=draw(small),
        drafted=drafted,
        depth=depth,
        accepted=accepted,
        emitted=draw(st.integers(0, accepted + 1)),
        ranks=tuple(draw(st.lists(small, max_size=3))),
        draft_ns=draw(nanoseconds),
        extend_ns=draw(nanoseconds),
        verify_ns=draw(nanoseconds),
        other_ns=draw(nanoseconds),
    )


sampling = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100),
    top_p=st.floats(0, 1, exclude_min=True),
    seed=st.integers(),
    stop=st.lists(any_text, max_size=2).map(tuple),
    stop_token_ids=st.lists(small, max_size=2).map(tuple),
    ignore_eos=st.booleans(),
)
messages = st.lists(st.builds(Message, role=any_text, content=any_text), min_size=1, max_size=2)
content = st.one_of(
    st.fixed_dictionaries({"messages": messages.map(tuple)}),
    st.fixed_dictionaries({"prompt": any_text}),
    st.fixed_dictionaries({"prompt_ids": st.lists(small, max_size=3).map(tuple)}),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    return Request(
        **draw(content),
        request_id=draw(any_text),
        workload=draw(any_text),
        category=draw(any_text),
        prompt_id=draw(any_text),
        sampling=draw(sampling),
        turn=draw(small),
        follow_ups=tuple(draw(st.lists(any_text, max_size=2))),
    )


maybe = st.none() | small
traces = st.builds(
    RequestTrace,
    request=requests(),
    due_ns=nanoseconds,
    sent_ns=nanoseconds,
    end_ns=nanoseconds,
    chunks=st.lists(
        st.builds(Chunk, at_ns=nanoseconds, tokens=maybe, text=any_text), max_size=3
    ).map(tuple),
    steps=st.lists(steps(), max_size=3).map(tuple),
    finish=st.sampled_from(Finish),
    evidence=st.sampled_from(Evidence),
    usage=st.builds(
        Usage,
        prompt_tokens=maybe,
        completion_tokens=maybe,
        verify_steps=maybe,
        drafted=maybe,
        accepted=maybe,
        histogram=st.none() | st.lists(small, max_size=3).map(tuple),
    ),
    output_ids=st.none() | st.lists(small, max_size=3).map(tuple),
    error=any_text,
    warmup=st.booleans(),
)
names = st.text(st.characters(codec="utf-8"), max_size=6)  # columns of the parquet file
arms = st.builds(
    ArmRun,
    point_id=names,
    workload=names,
    batch_size=st.integers(1, 64),
    temperature=st.floats(0, 2),
    block=st.integers(0, 99),
    started_ns=nanoseconds,
    wall_ns=nanoseconds,
    requests=st.lists(traces, max_size=2).map(tuple),
)
