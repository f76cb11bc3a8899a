import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterable

import pytest

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Estimate, Evidence, Severity
from specbench.metrics import validity
from specbench.metrics.arms import Arm, gather
from specbench.metrics.example import MS, run_of, trace_of
from specbench.metrics.figures import Figures, figures
from specbench.metrics.lossless import Lossless, Verdict
from specbench.request import Message, SamplingParams
from specbench.trace import Chunk, Finish, RequestTrace, Usage

K3 = SpecConfig.chain(3)
Edit = Callable[[RequestTrace], RequestTrace]


def traces(count: int = 20, *, depth: int = 3, edit: Edit | None = None) -> list[RequestTrace]:
    """``count`` healthy requests of 12 steps; ``edit`` changes every one."""
    kept = [3] * 6 if depth else [0] * 24
    made = [
        trace_of(kept * 2, depth=depth, name=f"p{i}", step_ms=20 - i * 0.01) for i in range(count)
    ]
    made = [
        dataclasses.replace(
            t,
            request=dataclasses.replace(
                t.request,
                prompt=None,
                messages=(Message(role="user", content=t.request.request_id),),
                sampling=SamplingParams(max_tokens=t.usage.completion_tokens or 1),
            ),
            finish=Finish.STOP,
            output_ids=tuple(range(t.usage.completion_tokens or 0)),
        )
        for t in made
    ]
    return [edit(t) for t in made] if edit else made


def arm_of(found: Iterable[RequestTrace], blocks: int = 1) -> Arm:
    """``found`` as one arm, dealt out over ``blocks`` in order."""
    every = list(found)
    edges = [len(every) * block // blocks for block in range(blocks + 1)]
    runs = [
        run_of(*every[start:end], block=block)
        for block, (start, end) in enumerate(itertools.pairwise(edges))
    ]
    (arm,) = gather(runs).values()
    return arm


def caveats(
    found: Iterable[RequestTrace],
    *,
    baseline: Iterable[RequestTrace] | None = None,
    lossless: Lossless | None = None,
    change: Callable[[Figures], Figures] = lambda seen: seen,
    blocks: int = 5,
    spec: SpecConfig = K3,
) -> dict[str, Caveat]:
    arm = arm_of(found, blocks)
    plain = None if baseline is None else arm_of(baseline, blocks)
    seen = change(figures(arm, spec, plain))
    listed = validity.caveats(arm, spec, seen, baseline=plain, lossless=lossless)
    return {caveat.code: caveat for caveat in listed}


def codes(found: Iterable[RequestTrace], **given: object) -> set[str]:
    return set(caveats(found, baseline=traces(depth=0), **given))  # type: ignore[arg-type]


def edited(**changes: object) -> Edit:
    return lambda trace: dataclasses.replace(trace, **changes)  # type: ignore[arg-type]


def sampling(**changes: object) -> Edit:
    def edit(trace: RequestTrace) -> RequestTrace:
        asked = dataclasses.replace(trace.request.sampling, **changes)  # type: ignore[arg-type]
        return dataclasses.replace(
            trace, request=dataclasses.replace(trace.request, sampling=asked)
        )

    return edit


def test_healthy_arm_has_no_caveat() -> None:
    assert codes(traces()) == set()


@pytest.mark.parametrize(
    ("code", "edit"),
    [
        ("eos_ignored", sampling(ignore_eos=True)),
        ("looping", edited(output_ids=(7,) * 49)),
        ("schedule_lag", edited(due_ns=-30 * MS)),
        ("identity_broken", edited(usage=Usage(completion_tokens=60))),
    ],
)
def test_every_request_carries_the_fault(code: str, edit: Edit) -> None:
    assert code in codes(traces(edit=edit))
    assert code not in codes(traces())


def test_sample_size() -> None:
    few = caveats(traces(5), baseline=traces(5, depth=0))
    assert {"too_few_requests", "too_few_steps"} <= set(few)
    assert few["too_few_requests"].severity is Severity.NOTE


def test_failed_requests_name_the_first_error() -> None:
    found = traces()
    found[3] = dataclasses.replace(found[3], finish=Finish.ERROR, error="HTTP 500: out of memory")
    caveat = caveats(found, baseline=traces(depth=0))["failed_requests"]
    assert "1 of 20" in caveat.text
    assert "out of memory" in caveat.text


def test_outputs_that_the_context_cut_are_truncated() -> None:
    def cut(trace: RequestTrace) -> RequestTrace:
        return dataclasses.replace(sampling(max_tokens=500)(trace), finish=Finish.LENGTH)

    assert "truncated" in codes(traces(edit=cut))


def test_cancelled_requests_are_truncated() -> None:
    found = traces()
    found[0] = dataclasses.replace(found[0], finish=Finish.CANCELLED)
    assert "truncated" in codes(found)


def test_a_tenth_of_loops_is_tolerated() -> None:
    found = traces()
    loop = (7,) * 49
    found[0], found[1] = (dataclasses.replace(t, output_ids=loop) for t in found[:2])
    assert "looping" not in codes(found)
    found[2] = dataclasses.replace(found[2], output_ids=loop)
    assert "looping" in codes(found)


def test_cold_start_is_about_the_first_request_sent() -> None:
    found = traces()
    slow = trace_of([3] * 12, depth=3, name="p0", step_ms=40)
    found[0] = dataclasses.replace(found[0], chunks=slow.chunks, steps=slow.steps)
    assert "cold_start" not in codes([*found[1:], dataclasses.replace(found[0], sent_ns=5)])
    assert "cold_start" in codes([dataclasses.replace(found[0], sent_ns=-5), *found[1:]])


def test_weak_evidence_by_kind() -> None:
    def weaker(evidence: Evidence, steps: int | None = None) -> str:
        told = Usage(completion_tokens=49, verify_steps=steps)
        edit = edited(steps=(), evidence=evidence, usage=told)
        return caveats(traces(edit=edit))["weak_evidence"].text

    assert "per delivery" in weaker(Evidence.CHUNKS)
    assert "nothing shows" in weaker(Evidence.NONE)
    assert "after trimming" in weaker(Evidence.TOTALS, steps=12)


def test_unknown_first_chunk_is_weak_evidence() -> None:
    def vague(trace: RequestTrace) -> RequestTrace:
        first = Chunk(at_ns=trace.chunks[0].at_ns, tokens=None, text="x")
        return dataclasses.replace(trace, chunks=(first, *trace.chunks[1:]))

    assert "n - 1" in caveats(traces(edit=vague))["weak_evidence"].text

    def both(trace: RequestTrace) -> RequestTrace:
        told = Usage(completion_tokens=49, verify_steps=12)
        weak = dataclasses.replace(trace, steps=(), evidence=Evidence.TOTALS, usage=told)
        return vague(weak)

    text = caveats(traces(edit=both))["weak_evidence"].text
    assert "after trimming; the first delivery's tokens are not known" in text


def test_merged_deliveries() -> None:
    def merged(trace: RequestTrace) -> RequestTrace:
        first, *rest = trace.chunks
        pairs = zip(rest[::2], rest[1::2], strict=True)
        joined = (Chunk(at_ns=b.at_ns, tokens=(a.tokens or 0) + (b.tokens or 0)) for a, b in pairs)
        return dataclasses.replace(trace, chunks=(first, *joined))

    assert "merged_deliveries" in codes(traces(edit=merged))


def test_no_baseline() -> None:
    assert set(caveats(traces())) == {"no_baseline"}


def test_a_baseline_in_which_drafts_were_accepted_is_none() -> None:
    def told(accepted: int | None) -> dict[str, Caveat]:
        usage = Usage(completion_tokens=25, drafted=9, accepted=accepted)
        edit = edited(steps=(), evidence=Evidence.TOTALS, usage=usage)
        return caveats(traces(depth=0, edit=edit), spec=SpecConfig.baseline())

    found = told(3)["baseline_speculates"]
    assert found.severity is Severity.INVALID
    assert "accepted 60 drafts" in found.text  # 3 in each of 20 requests
    assert "baseline_speculates" not in {**told(0), **told(None)}


def test_drafts_without_a_count_of_steps_are_weak_evidence() -> None:
    told = Usage(completion_tokens=49, drafted=36, accepted=36)
    edit = edited(steps=(), evidence=Evidence.TOTALS, usage=told)
    assert "per delivery" in caveats(traces(edit=edit))["weak_evidence"].text


def test_unpaired() -> None:
    some = caveats(traces(), baseline=traces(17, depth=0))["unpaired"]
    assert some.text.endswith("speedup rests on the pairs")
    cut = traces(edit=lambda trace: dataclasses.replace(trace, chunks=trace.chunks[:1]))
    none = caveats(cut, baseline=traces(depth=0))["unpaired"]
    assert none.text.endswith("none was timed in both, so no speedup")


def with_speedup(value: float, low: float, high: float) -> Callable[[Figures], Figures]:
    estimate = Estimate(value=value, low=low, high=high, n=20, unit="x", evidence=Evidence.STEPS)
    return lambda seen: dataclasses.replace(seen, speedup=estimate, decomposition=None)


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [
        ((1.02, 0.97, 1.08), {"no_difference"}),
        ((4.2, 4.1, 4.3), {"incomparable_baseline"}),
        ((3.9, 3.8, 4.0), set()),
    ],
)
def test_speedup_against_one_and_accept_length(
    speedup: tuple[float, float, float], expected: set[str]
) -> None:
    assert codes(traces(), change=with_speedup(*speedup)) == expected


@pytest.mark.parametrize(("blocks", "few"), [(1, True), (4, True), (5, False)])
def test_an_interval_of_few_blocks_knows_of_no_slow_seconds(blocks: int, few: bool) -> None:
    assert ("few_blocks" in codes(traces(), blocks=blocks)) is few


def test_few_blocks_are_no_matter_without_an_interval() -> None:
    assert "few_blocks" not in codes(traces(4), blocks=1)


def test_decomposition_must_agree() -> None:
    def late(trace: RequestTrace) -> RequestTrace:
        start = trace.chunks[0].at_ns
        slower = (
            dataclasses.replace(c, at_ns=start + (c.at_ns - start) * 3 // 2) for c in trace.chunks
        )
        return dataclasses.replace(trace, chunks=tuple(slower))

    caveat = caveats(traces(edit=late), baseline=traces(depth=0))["decomposition_disagrees"]
    assert "33% of speculative decode time lies outside" in caveat.text


@pytest.mark.parametrize(
    ("verdict", "barred"),
    [(Verdict.LOSSY, True), (Verdict.TIE_ONLY, False), (Verdict.INCONCLUSIVE, False)],
)
def test_lossy(verdict: Verdict, barred: bool) -> None:
    lossless = Lossless(verdict=verdict, compared=20, identical=18)
    assert ("lossy" in codes(traces(), lossless=lossless)) is barred


def test_table_of_the_docstring_lists_every_code_with_its_severity() -> None:
    raised = re.findall(r"_(note|warning|invalid)\(\s*\"(\w+)\"", inspect.getsource(validity))
    table = re.findall(r"^(\w+) +(note|warning|invalid) ", validity.__doc__ or "", re.MULTILINE)
    assert {(code, severity) for severity, code in raised} == set(table)
