import dataclasses

import pytest

from specbench.config import SpecConfig
from specbench.estimate import Evidence
from specbench.metrics.arms import Arm, gather
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.figures import figures
from specbench.trace import RequestTrace, Usage

K3 = SpecConfig.chain(3)


def arm(*traces: RequestTrace, batch_size: int = 1) -> Arm:
    (found,) = gather([dataclasses.replace(run_of(*traces), batch_size=batch_size)]).values()
    return found


def of(name: str, category: str, accepted: list[int], depth: int = 3) -> RequestTrace:
    trace = trace_of(accepted, depth=depth, name=name)
    return dataclasses.replace(trace, request=dataclasses.replace(trace.request, category=category))


MIXED = (of("A", "x", [3, 3]), of("B", "y", [0, 0, 0]))
PLAIN = (of("A", "x", [0] * 8, depth=0), of("B", "y", [0] * 3, depth=0))


def test_all_and_its_categories_add_up() -> None:
    seen = figures(arm(*MIXED), K3, arm(*PLAIN))
    parts = [figures(arm(*MIXED), K3, arm(*PLAIN), category=c) for c in ("x", "y")]
    assert seen.output_tokens == sum(p.output_tokens or 0 for p in parts) == 13
    assert seen.verify_steps == sum(p.verify_steps or 0 for p in parts) == 5
    assert [p.category for p in parts] == ["x", "y"]
    assert parts[0].speedup is not None
    assert parts[0].speedup.value == pytest.approx(4.0)


def test_category_of_a_larger_batch_has_acceptance_and_latency_only() -> None:
    seen = figures(arm(*MIXED, batch_size=2), K3, arm(*PLAIN, batch_size=2), category="x")
    assert seen.accept_length is not None
    assert seen.latency.tpot_ms_p50 is not None
    assert seen.output_tok_s is seen.baseline_tok_s is seen.speedup is None
    assert (seen.split, seen.decomposition) == (None, None)


def test_a_category_called_all_does_not_pass_for_the_whole() -> None:
    mixed = arm(of("A", "all", [3, 3]), of("B", "y", [0, 0, 0]))
    assert list(mixed.requests.categories) == ["all (category)", "y"]
    part, whole = (figures(mixed, K3, None, category=c) for c in ("all (category)", None))
    assert (part.category, part.requests) == ("all (category)", 1)
    assert (whole.category, whole.requests) == ("all", 2)


def test_only_category_ran_alone() -> None:
    seen = figures(arm(MIXED[0], batch_size=2), K3, arm(PLAIN[0], batch_size=2), category="x")
    assert seen.category == "x"
    assert seen.speedup is not None
    assert seen.output_tok_s is not None


def test_open_loop_has_no_decomposition() -> None:
    seen = figures(arm(*MIXED), K3, arm(*PLAIN), open_loop=True)
    assert (seen.split, seen.decomposition) == (None, None)
    assert seen.speedup is not None


def test_accept_length_from_deliveries_is_marked() -> None:
    trace = dataclasses.replace(
        trace_of([3, 3], depth=3),
        steps=(),
        evidence=Evidence.CHUNKS,
        usage=Usage(completion_tokens=9),
    )
    seen = figures(arm(trace), K3, None)
    assert seen.accept_length is not None
    assert (seen.accept_length.value, seen.evidence) == (4.0, Evidence.CHUNKS)
    assert seen.verify_steps is None
    assert figures(arm(trace), SpecConfig.baseline(), None).accept_length is None


def test_nothing_complete_gives_nothing() -> None:
    seen = figures(arm(dataclasses.replace(MIXED[0], warmup=True)), K3, None)
    assert seen.requests == 0
    assert (seen.output_tokens, seen.accept_length, seen.output_tok_s) == (None, None, None)
