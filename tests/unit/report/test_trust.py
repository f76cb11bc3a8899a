import dataclasses

from specbench.metrics.lossless import Difference, Lossless, Verdict
from specbench.metrics.summary import Summary, summarise
from specbench.report import wording
from specbench.report.document import Items, Table
from specbench.report.plots.heatmap import heatmap
from specbench.report.trust import trust
from tests.unit.report.sample_runs import arm_runs, prompts, sample_input


def test_exact_arms_are_counted_and_not_listed(summary: Summary) -> None:
    _, items = trust(summary)
    assert isinstance(items, Items)
    assert "9 of 9 arms say exactly what plain decoding says" in items.items[0][1]
    assert "would be found 4 times in 5" in items.items[0][1]


def test_an_arm_that_differs_shows_where_and_how_clearly(summary: Summary) -> None:
    found = Lossless(
        verdict=Verdict.LOSSY,
        compared=20,
        identical=18,
        differences=tuple(
            Difference(request_id="a", position=at, baseline_token=1, arm_token=2, gap=gap)
            for at, gap in ((7, 0.25), (9, 0.5))
        ),
        reason="2 outputs part",
        control_compared=20,
        control_identical=20,
    )
    arms = (summary.arms[0], dataclasses.replace(summary.arms[1], lossless=found))
    *_, table = trust(dataclasses.replace(summary, arms=arms, bests=summary.bests[:1]))
    assert isinstance(table, Table)
    (row,) = table.rows
    assert row[1:6] == ("lossy", "10 % [3, 30]", "8", "5.0e-01", "0 of 20 differ")


def test_a_second_plain_arm_shows_the_noise_floor() -> None:
    given = sample_input(requests=15, batch_sizes=(1,))
    plain = given.points["base"]
    again = tuple(
        dataclasses.replace(run, point_id="base-again")
        for run in arm_runs(plain, prompts(15), seed=99)
    )
    summary = summarise(
        dataclasses.replace(
            given, runs=(*given.runs, *again), points={**given.points, "base-again": plain}
        )
    )
    _, items = trust(summary)
    assert isinstance(items, Items)
    assert "a noise floor of" in items.items[0][1]
    (seen,) = summary.noise.values()
    assert 0.95 < seen.value < 1.05
    speculative = [arm.lossless for arm in summary.arms if not arm.spec.is_baseline]
    assert all(verdict and verdict.control_identical == 15 for verdict in speculative)
    assert summary.headline.arm is not None
    assert not summary.headline.arm.spec.is_baseline
    names = [wording.named(arm) for arm in summary.arms if arm.spec.is_baseline]
    assert names == ["0/1/1", "0/1/1 (again)"]
    figure = heatmap(summary)
    assert figure is not None
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "0 again"


def test_sampled_outputs_are_not_counted_as_not_exact(summary: Summary) -> None:
    tested = Lossless(verdict=Verdict.INCONCLUSIVE, compared=30, identical=0, p=0.4)
    apart = dataclasses.replace(tested, verdict=Verdict.LOSSY, p=0.0002)
    audits = [tested] * (len(summary.arms) - 2) + [apart]
    arms = [
        dataclasses.replace(arm, lossless=found)
        for arm, found in zip(summary.arms[1:], audits, strict=True)
    ]
    one = dataclasses.replace(summary, arms=(summary.arms[0], *arms), bests=summary.bests[-1:])
    _, items, _ = trust(one)
    assert isinstance(items, Items)
    assert "differ by design" in items.items[0][1]
    assert "in 1 of 10 arms" in items.items[0][1]
    assert "exactly" not in items.items[0][1]


def test_an_arm_without_an_answer_is_not_counted_as_not_exact(summary: Summary) -> None:
    nothing = Lossless(verdict=Verdict.INCONCLUSIVE, compared=0, identical=0)
    arms = (
        summary.arms[0],
        dataclasses.replace(summary.arms[1], lossless=nothing),
        *summary.arms[2:],
    )
    _, items, _ = trust(dataclasses.replace(summary, arms=arms))
    assert isinstance(items, Items)
    assert "8 of 8 arms say exactly" in items.items[0][1]


def test_without_plain_decoding_no_share_of_exact_arms_is_told(summary: Summary) -> None:
    arms = tuple(dataclasses.replace(arm, lossless=None) for arm in summary.arms)
    _, items = trust(dataclasses.replace(summary, arms=arms))
    assert isinstance(items, Items)
    assert items.items[0][1].startswith("no arm could be held against plain decoding's outputs")
    assert "0 of 0" not in items.items[0][1]
