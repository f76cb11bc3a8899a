import dataclasses

import pytest

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Evidence, Severity
from specbench.metrics.best import Outcome
from specbench.metrics.lossless import Lossless, Verdict
from specbench.metrics.summary import Summary
from specbench.report import wording


def test_settings_are_the_flags() -> None:
    assert wording.settings(SpecConfig.chain(5)) == "num_steps=5 topk=1"
    tree = SpecConfig(num_steps=3, topk=4, num_draft_tokens=16)
    assert wording.settings(tree) == "num_steps=3 topk=4 num_draft_tokens=16"
    assert wording.settings(SpecConfig.baseline()) == "no speculation"


@pytest.mark.parametrize(
    ("outcome", "start"),
    [
        (Outcome.FASTER, "Best at batch size 1: num_steps=5 topk=4 num_draft_tokens=16: 1.96x ["),
        (Outcome.NO_DIFFERENCE, "No difference shown at batch size 1: the best point, num_steps"),
        (Outcome.SLOWER, "Speculation is slower at batch size 1: the best point, num_steps=5"),
        (Outcome.UNSURE, "Best at batch size 1: num_steps=5 topk=4 num_draft_tokens=16: 1.96x"),
    ],
)
def test_verdict_says_what_the_interval_says(
    summary: Summary, outcome: Outcome, start: str
) -> None:
    best = dataclasses.replace(summary.headline, outcome=outcome)
    assert wording.verdict(best).startswith(start)
    assert wording.verdict(best).endswith(", accept length 4.27, exact.")


def test_verdict_names_the_warnings_of_its_point(summary: Summary) -> None:
    best = summary.headline
    assert best.arm is not None
    doubt = Caveat(code="cold_start", severity=Severity.WARNING, text="")
    note = Caveat(code="eos_ignored", severity=Severity.NOTE, text="")
    arm = dataclasses.replace(best.arm, caveats=(note, doubt))
    text = wording.verdict(dataclasses.replace(best, arm=arm))
    assert text.endswith("exact (but see cold_start).")


def test_verdict_names_what_is_wrong_with_plain_decoding(summary: Summary) -> None:
    best = summary.headline
    assert best.arm is not None
    assert best.plain is summary.arms[0]
    cold = Caveat(code="cold_start", severity=Severity.WARNING, text="")
    broken = Caveat(code="identity_broken", severity=Severity.INVALID, text="")
    note = Caveat(code="length_capped", severity=Severity.NOTE, text="")
    plain = dataclasses.replace(best.plain, caveats=(note, cold, broken))
    text = wording.verdict(dataclasses.replace(best, plain=plain))
    assert text.endswith(
        "(but see cold_start of plain decoding, identity_broken of plain decoding)."
    )
    arm = dataclasses.replace(best.arm, caveats=(cold, cold))
    text = wording.verdict(dataclasses.replace(best, arm=arm, plain=plain))
    assert text.endswith("(but see cold_start, identity_broken of plain decoding).")


def test_a_speedup_within_the_noise_floor_is_doubted_though_a_note(summary: Summary) -> None:
    best = summary.headline
    assert best.arm is not None
    within = Caveat(code="within_noise_floor", severity=Severity.NOTE, text="")
    arm = dataclasses.replace(best.arm, caveats=(within,))
    assert wording.verdict(dataclasses.replace(best, arm=arm)).endswith(
        "(but see within_noise_floor)."
    )


def test_only_exact_outputs_stand_alone_in_the_verdict(summary: Summary) -> None:
    best = summary.headline
    assert best.arm is not None
    seen = Lossless(verdict=Verdict.INCONCLUSIVE, compared=20, identical=0)
    arm = dataclasses.replace(best.arm, lossless=seen)
    text = wording.verdict(dataclasses.replace(best, arm=arm))
    assert text.endswith(", accept length 4.27, losslessness inconclusive.")


def test_verdicts_of_one_run_do_not_read_alike(summary: Summary) -> None:
    cold = summary.headline.cell
    warm = dataclasses.replace(cold, temperature=0.8)
    best = dataclasses.replace(summary.headline, cell=warm)
    assert wording.verdict(best, [cold, warm]).startswith("Best at temperature 0.8, batch size 1:")
    assert wording.apart(cold, [cold]) == "batch size 1"
    other = dataclasses.replace(cold, workload="b")
    assert wording.apart(other, [cold, warm, other]) == "b, temperature 0, batch size 1"


def test_verdict_without_a_point_says_why(summary: Summary) -> None:
    best = summary.headline
    assert best.arm is not None
    nothing = dataclasses.replace(best, outcome=Outcome.NONE, arm=None)
    assert "no speedup was measured" in wording.verdict(nothing)
    unanswered = dataclasses.replace(nothing, answered=False)
    assert wording.verdict(unanswered).endswith("no speculative point answered a request.")
    barred = dataclasses.replace(nothing, excluded=((best.arm, "looping"),))
    assert wording.verdict(barred).endswith("every point with a speedup is invalid (looping).")


def test_decomposition_gives_the_speedup(summary: Summary) -> None:
    best = summary.headline
    assert best.arm is not None
    text = wording.decomposition(best.arm)
    assert text.startswith("4.10 tokens per step x plain step 8.62 ms / speculative step")
    assert "= 1.96x" in text
    untimed = dataclasses.replace(
        best.arm, total=dataclasses.replace(best.arm.total, decomposition=None)
    )
    assert wording.decomposition(untimed) == ""


def test_histogram_is_one_line() -> None:
    assert "\n" not in wording.histogram([5, 3, 2])
    assert wording.histogram(None) == wording.histogram([0, 0]) == ""


def test_evidence_is_the_weakest_of_the_speculative_arms(summary: Summary) -> None:
    assert wording.evidence(summary).endswith("step by step (STEPS). Times: at the client.")


def test_an_arm_without_an_answer_takes_nothing_from_the_evidence(summary: Summary) -> None:
    arm = summary.arms[1]
    silent = dataclasses.replace(arm.total, requests=0, evidence=Evidence.NONE)
    failed = dataclasses.replace(arm, total=silent)
    plain = summary.arms[0]
    others = summary.arms[2:]
    text = wording.evidence(dataclasses.replace(summary, arms=(plain, failed, *others)))
    assert text.startswith("Acceptance: seen step by step (STEPS).")
    text = wording.evidence(dataclasses.replace(summary, arms=(plain, failed)))
    assert text.startswith("Acceptance: no speculative point answered a request.")


def test_blocks_that_are_missing_are_said(summary: Summary) -> None:
    assert wording.unfinished(summary) == ""
    text = wording.unfinished(dataclasses.replace(summary, unfinished=(31, 40)))
    assert text.startswith("Unfinished: 31 of 40 blocks were measured")


def test_times_that_rest_on_n_minus_1_are_said_beside_acceptance(summary: Summary) -> None:
    arm = summary.arms[0]
    late = dataclasses.replace(arm.total.latency, tpot_exact=False)
    vague = dataclasses.replace(arm, total=dataclasses.replace(arm.total, latency=late))
    text = wording.evidence(dataclasses.replace(summary, arms=(vague, *summary.arms[1:])))
    assert "step by step (STEPS). Times: at the client; times per token divide by n - 1" in text
    assert text.endswith("(CHUNKS).")


def test_place_names_only_what_differs(summary: Summary) -> None:
    assert wording.place(summary.arms[1], summary) == "1/1/2 at batch size 1"
    one_cell = dataclasses.replace(summary, bests=summary.bests[:1])
    assert wording.place(summary.arms[1], one_cell) == "1/1/2"
