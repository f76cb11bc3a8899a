import dataclasses

import pytest

from specbench.errors import ConfigError
from specbench.metrics.arms import Arm, gather
from specbench.metrics.example import MS, run_of, trace_of
from specbench.metrics.goodput import Goodput, Objectives, goodput, parse_objectives
from specbench.metrics.stats import wilson
from specbench.trace import Finish, RequestTrace


def arm_of(*traces: RequestTrace) -> Arm:
    (arm,) = gather([run_of(*traces)]).values()
    return arm


def good(objectives: Objectives, *traces: RequestTrace, open_loop: bool = False) -> Goodput:
    seen = goodput(arm_of(*traces), objectives, open_loop=open_loop)
    assert seen is not None
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
