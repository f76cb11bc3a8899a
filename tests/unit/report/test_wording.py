import dataclasses

import pytest

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Severity
from specbench.metrics.best import Outcome
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


def test_verdict_without_a_point_says_why(summary: Summary) -> None:
    best = summary.headline
    assert best.arm is not None
    nothing = dataclasses.replace(best, outcome=Outcome.NONE, arm=None)
    assert "no speedup was measured" in wording.verdict(nothing)
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
