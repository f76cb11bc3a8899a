import dataclasses

from specbench.config import SpecConfig
from specbench.estimate import Estimate, Evidence
from specbench.metrics.best import Outcome, fastest_for, outcome_of
from specbench.metrics.summary import Summary, summarise
from tests.unit.report.sample_runs import StepCost, sample_input

POINTS = (SpecConfig.baseline(), SpecConfig.chain(1), SpecConfig.chain(3))


def summary(requests: int = 20, **costs: StepCost) -> Summary:
    return summarise(sample_input(requests=requests, points=POINTS, batch_sizes=(1,), costs=costs))


def test_fastest_point_is_named() -> None:
    best = summary().headline
    assert best.outcome is Outcome.FASTER
    assert best.arm is not None
    assert best.arm.spec == SpecConfig.chain(3)


def test_points_that_cannot_be_told_apart_are_tied() -> None:
    # Three cheap levels against one: made equal in speed by the cost of a draft level.
    best = summary(k3=StepCost(draft_level=1.88)).headline
    assert [arm.key.point_id for arm in best.tied] in (["k1"], ["k3"])


def test_slower_speculation_says_so() -> None:
    costly = StepCost(draft_level=20.0)
    best = summary(k1=costly, k3=costly).headline
    assert best.outcome is Outcome.SLOWER


def test_too_few_requests_are_unsure() -> None:
    assert summary(requests=8).headline.outcome is Outcome.UNSURE


def test_invalid_points_are_never_best() -> None:
    # A step of a third of a plain one cannot be: the baseline is not comparable.
    best = summary(k3=StepCost(base=1.0, node=0.01, draft_level=0.1, extend=0.1)).headline
    assert best.arm is not None
    assert best.arm.key.point_id == "k1"
    assert [(arm.key.point_id, code) for arm, code in best.excluded] == [
        ("k3", "incomparable_baseline")
    ]


def test_looping_outputs_bar_every_point() -> None:
    given = sample_input(requests=20, points=POINTS, batch_sizes=(1,), looping=True)
    best = summarise(given).headline
    assert best.outcome is Outcome.NONE
    assert best.arm is None
    assert {code for _, code in best.excluded} == {"looping"}


def test_without_baseline_nothing_is_best() -> None:
    given = sample_input(requests=20, points=POINTS[1:], batch_sizes=(1,))
    best = summarise(given).headline
    assert best.outcome is Outcome.NONE
    assert best.answered
    assert best.plain is None


def test_plain_decoding_alone_answers_no_speculative_point() -> None:
    found = summarise(sample_input(requests=12, points=POINTS[:1], batch_sizes=(1,)))
    assert not found.headline.answered
    assert found.headline.plain is found.arms[0]


def test_outcome_needs_the_interval() -> None:
    speedup = Estimate(value=1.1, low=0.98, high=1.2, n=20, unit="x", evidence=Evidence.STEPS)
    assert outcome_of(speedup) is Outcome.NO_DIFFERENCE
    assert outcome_of(dataclasses.replace(speedup, low=1.01)) is Outcome.FASTER
    assert outcome_of(dataclasses.replace(speedup, value=0.9, low=0.8, high=0.99)) is Outcome.SLOWER
    assert outcome_of(dataclasses.replace(speedup, low=None, high=None)) is Outcome.UNSURE


def test_fastest_point_of_a_category() -> None:
    found = summary()
    fastest = fastest_for("extraction", found.arms)
    assert fastest is not None
    arm, speedup = fastest
    assert arm.key.point_id == "k3"
    assert speedup == next(s.speedup for s in arm.categories if s.category == "extraction")
    assert fastest_for("poetry", found.arms) is None
