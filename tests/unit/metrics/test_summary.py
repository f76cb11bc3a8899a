import dataclasses

import pytest

from specbench.config import SpecConfig
from specbench.errors import OutputError
from specbench.estimate import Caveat, Severity
from specbench.metrics.arms import key_of
from specbench.metrics.lossless import Lossless, Verdict
from specbench.metrics.summary import SummaryInput, judge_all, ledger_of, summarise
from specbench.trace import ArmRun
from specbench.verification import VerifyRules
from tests.unit.report.sample_runs import sample_input

POINTS = (SpecConfig.chain(2), SpecConfig.baseline(), SpecConfig.chain(1))


@pytest.fixture(scope="module")
def given() -> SummaryInput:
    return sample_input(requests=20, points=POINTS, batch_sizes=(2, 1))


def test_arms_are_ordered_by_cell_with_the_baseline_first(given: SummaryInput) -> None:
    found = [(a.key.cell.batch_size, a.key.point_id) for a in summarise(given).arms]
    assert found == [(1, "base"), (1, "k2"), (1, "k1"), (2, "base"), (2, "k2"), (2, "k1")]


def test_order_of_blocks_does_not_matter(given: SummaryInput) -> None:
    backwards = dataclasses.replace(given, runs=given.runs[::-1])
    assert summarise(backwards) == summarise(given)


def test_ledger_is_of_the_best_point(given: SummaryInput) -> None:
    summary = summarise(given)
    assert summary.headline.arm is not None
    length = summary.headline.arm.total.accept_length
    assert length is not None
    assert summary.ledger[0].value == length.value


def test_caveats_from_outside_are_passed_on(given: SummaryInput) -> None:
    by_hand = Caveat(code="capture_by_hand", severity=Severity.NOTE, text="ids given by hand")
    one = Caveat(code="one", severity=Severity.INVALID, text="bad")
    summary = summarise(dataclasses.replace(given, caveats={"": (by_hand,), "k2": (one,)}))
    assert all(by_hand in arm.caveats for arm in summary.arms)
    assert {a.key.point_id for a in summary.arms if one in a.caveats} == {"k2"}
    assert summary.headline.arm is not None
    assert summary.headline.arm.key.point_id == "k1"


def test_verdicts_of_the_caller_win(given: SummaryInput) -> None:
    key = key_of(next(run for run in given.runs if run.point_id == "k1"))
    lossy = Lossless(verdict=Verdict.LOSSY, compared=20, identical=1)
    summary = summarise(dataclasses.replace(given, lossless={key: lossy}))
    found = {arm.key: arm for arm in summary.arms}
    assert found[key].lossless == lossy
    assert "lossy" in {caveat.code for caveat in found[key].caveats}


def test_judge_all_covers_every_speculative_arm(given: SummaryInput) -> None:
    verdicts = judge_all(given)
    assert {(k.cell.batch_size, k.point_id) for k in verdicts} == {
        (b, p) for b in (1, 2) for p in ("k1", "k2")
    }
    assert {v.verdict for v in verdicts.values()} == {Verdict.EXACT}


def test_points_without_a_block_are_listed(given: SummaryInput) -> None:
    points = {**given.points, "k5": SpecConfig.chain(5)}
    assert summarise(dataclasses.replace(given, points=points)).not_measured == ("k5",)


def test_missing_blocks_are_counted(given: SummaryInput) -> None:
    def unfinished(planned: int | None) -> tuple[int, int] | None:
        return summarise(dataclasses.replace(given, planned_blocks=planned)).unfinished

    measured = len(given.runs)
    assert unfinished(measured + 2) == (measured, measured + 2)
    assert unfinished(measured) is None
    assert unfinished(None) is None


def test_empty_run_is_refused(given: SummaryInput) -> None:
    with pytest.raises(OutputError, match="no measured request"):
        summarise(dataclasses.replace(given, runs=()))


def test_unknown_point_is_refused(given: SummaryInput) -> None:
    alone = dataclasses.replace(given, points={"base": SpecConfig.baseline()})
    for read in (summarise, judge_all, ledger_of):
        with pytest.raises(OutputError, match="k2"):
            read(alone)


def test_thresholds_below_one_make_sampled_arms_lossy_and_no_others() -> None:
    (caveat,) = VerifyRules(threshold_acc=0.9).caveats
    for temperature, marked in ((0.0, set()), (0.7, {"k1", "k2"})):
        given = sample_input(requests=20, points=POINTS)
        every = [dataclasses.replace(run, temperature=temperature) for run in given.runs]
        for runs in (tuple(every), tuple(run for run in every if run.point_id != "base")):
            summary = summarise(
                dataclasses.replace(given, runs=runs, caveats={"": (caveat,)}, lossless={})
            )
            lossy = [arm for arm in summary.arms if "lossy" in {c.code for c in arm.caveats}]
            assert {arm.key.point_id for arm in lossy} == marked
            for arm in lossy:
                assert arm.lossless is not None
                assert arm.lossless.verdict is Verdict.LOSSY
                (why,) = [c for c in arm.caveats if c.code == "lossy"]
                assert "threshold_acc=0.9, below 1" in why.text
            assert all(caveat in arm.caveats for arm in summary.arms)


def test_plain_decoding_that_accepted_drafts_is_no_baseline(given: SummaryInput) -> None:
    def speculating(run: ArmRun) -> ArmRun:
        if run.point_id != "base" or run.batch_size != 1:
            return run
        first, *rest = run.requests
        usage = dataclasses.replace(first.usage, accepted=1)
        return dataclasses.replace(run, requests=(dataclasses.replace(first, usage=usage), *rest))

    summary = summarise(dataclasses.replace(given, runs=tuple(map(speculating, given.runs))))
    alone, together = ([a for a in summary.arms if a.key.cell.batch_size == b] for b in (1, 2))
    assert {a.key.point_id for a in alone if a.has("baseline_speculates")} == {"base"}
    assert [(a.total.speedup, a.lossless) for a in alone] == [(None, None)] * 3
    assert {a.key.point_id for a in alone if a.has("no_baseline")} == {"k1", "k2"}
    assert summary.baseline_of(alone[0].key.cell) is None
    assert all(a.total.speedup for a in together if a.key.point_id != "base")
    assert summary.baseline_of(together[0].key.cell) is together[0]
