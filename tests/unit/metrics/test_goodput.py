import dataclasses
from collections.abc import Iterable

import pytest

from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.estimate import Evidence, Severity
from specbench.metrics.arms import Arm, gather
from specbench.metrics.example import MS, run_of, trace_of
from specbench.metrics.figures import ArmResult
from specbench.metrics.goodput import (
    Goodput,
    Objectives,
    goodput,
    parse_objectives,
)
from specbench.metrics.stats import wilson
from specbench.metrics.summary import SummaryInput, summarise
from specbench.metrics.sums import RequestSums
from specbench.trace import Finish, RequestTrace, Usage


def arm_of(*traces: RequestTrace) -> Arm:
    (arm,) = gather([run_of(*traces)]).values()
    return arm


def good(objectives: Objectives, *traces: RequestTrace, open_loop: bool = False) -> Goodput:
    seen, caveats = goodput(arm_of(*traces), objectives, open_loop=open_loop)
    assert seen is not None
    assert caveats == ()
    return seen


def twenty() -> list[RequestTrace]:
    """TTFT 20 ms; time per token 1, 2, ... 20 ms; 4 tokens after the first."""
    return [trace_of([0] * 4, depth=0, name=f"p{i}", step_ms=i) for i in range(1, 21)]


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("tpot=15ms", 15),
        ("tpot=15.5ms,ttft=20ms", 15),
        ("ttft=19ms", 0),
        ("e2e=0.06s", 10),
        ("tpot=99ms", 20),
    ],
)
def test_objectives_are_limits_that_may_be_met_exactly(text: str, met: int) -> None:
    seen = good(parse_objectives(text), *twenty())
    assert seen.share == wilson(met, 20)


def test_goodput_per_second_is_over_the_window() -> None:
    traces = [trace_of([0] * 4, depth=0, name=f"p{i}", step_ms=10) for i in range(12)]
    seen = good(Objectives(tpot_ms=10), *traces)
    assert seen.requests_s == pytest.approx(12 / (12 * 0.06))


def test_what_failed_met_nothing() -> None:
    failed = dataclasses.replace(twenty()[0], finish=Finish.ERROR)
    seen = good(Objectives(tpot_ms=99), failed, *twenty()[1:])
    assert (seen.share.value, seen.share.n) == (19 / 20, 20)


def test_a_late_client_cannot_hide_the_wait_of_an_open_loop() -> None:
    late = [dataclasses.replace(t, due_ns=-50 * MS) for t in twenty()]
    limit = Objectives(ttft_ms=30)
    assert good(limit, *late).share.value == 1
    assert good(limit, *late, open_loop=True).share.value == 0


def test_one_delivery_has_no_time_per_token() -> None:
    assert good(Objectives(tpot_ms=1), trace_of([], depth=0)).share.value == 1


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=5", "ttft=-1ms", "itl=5ms", "ttft=1ms,ttft=2ms", "tpot=xms"]
)
def test_wrong_objectives_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--slo"):
        parse_objectives(text)


def summarised(traces: Iterable[RequestTrace]) -> ArmResult:
    """The one arm of a run of ``traces`` under an objective of 99 ms a token."""
    given = SummaryInput(
        runs=(run_of(*traces),),
        points={"k3": SpecConfig.chain(3)},
        backend="openai",
        target="t",
        draft="",
        objectives=Objectives(tpot_ms=99),
    )
    (arm,) = summarise(given).arms
    return arm


def uncounted(trace: RequestTrace, *, deliveries: int | None = None) -> RequestTrace:
    """As from a server that says neither a chunk's tokens nor their total."""
    return dataclasses.replace(
        trace,
        chunks=tuple(dataclasses.replace(c, tokens=None, text="x") for c in trace.chunks)[
            :deliveries
        ],
        usage=Usage(),
        steps=(),
        evidence=Evidence.CHUNKS,
    )


def test_a_time_per_token_that_is_not_known_is_not_met() -> None:
    arm = arm_of(uncounted(twenty()[0]), *twenty()[1:])
    limits = Objectives(ttft_ms=99, tpot_ms=99)
    nothing, (caveat,) = goodput(arm, limits, open_loop=False)
    assert nothing is None
    assert (caveat.code, caveat.severity) == ("goodput_unknown", Severity.WARNING)
    assert caveat.text.startswith("of 1 of 20 requests the output tokens are not known")
    assert "tpot <= 99 ms" in caveat.text


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        (Objectives(ttft_ms=99), 20),  # not asked
        (Objectives(ttft_ms=1, tpot_ms=99), 0),  # it missed another objective anyway
    ],
)
def test_goodput_that_does_not_hang_on_unknown_tokens_is_given(
    limits: Objectives, met: int
) -> None:
    traces = [uncounted(trace) for trace in twenty()]
    assert good(limits, *traces).share == wilson(met, 20)


def test_a_single_delivery_has_no_time_per_token_whatever_it_held() -> None:
    assert good(Objectives(tpot_ms=1), uncounted(twenty()[9], deliveries=1)).share.value == 1


def test_a_later_delivery_without_a_token_makes_no_time_per_token() -> None:
    (trace, *_) = twenty()
    flush = dataclasses.replace(trace.chunks[-1], tokens=0, text="x")
    first = dataclasses.replace(trace.chunks[0], tokens=5)
    held = dataclasses.replace(trace, chunks=(first, flush), steps=(), evidence=Evidence.CHUNKS)
    assert good(Objectives(tpot_ms=1e-3), held).share.value == 1


def test_the_summary_judges_each_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def met(request: RequestSums, *_: object) -> bool:
        judged.append(request.trace.request.request_id)
        return True

    monkeypatch.setattr("specbench.metrics.goodput._met", met)
    arm = summarised(twenty())
    assert len(judged) == len(set(judged)) == 20
    assert arm.goodput is not None
    assert arm.goodput.share == wilson(20, 20)


def test_the_summary_says_why_an_arm_has_no_goodput() -> None:
    arm = summarised(uncounted(trace) for trace in twenty())
    assert arm.goodput is None
    assert "goodput_unknown" in {caveat.code for caveat in arm.caveats}
