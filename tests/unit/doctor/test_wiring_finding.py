"""A verdict becomes an error with the ids to write, or a note with what could not be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specbench.doctor.findings import Severity
from specbench.doctor.wiring import Candidate, Look, Verdict
from specbench.doctor.wiring_candidates import Change
from specbench.doctor.wiring_finding import findings_of
from specbench.engine.wiring import Wiring

CLAIM = Wiring(slots=(0, 1, 2), theta=1e4)


def candidate(name: str, wiring: Wiring, first: float, gain: float) -> Candidate:
    change = Change(wire="slots", name=name, wiring=wiring)
    return Candidate(change=change, first=first, second=first, gain=gain, error=0.01, z=gain / 0.01)


def verdict(winner: Candidate | None, ranked: tuple[Candidate, ...]) -> Verdict:
    return Verdict(
        claimed=candidate("as the files claim", CLAIM, 0.4, 0.0),
        ranked=ranked,
        winner=winner,
        repairs=(winner,) if winner else (),
        requests=15,
        positions=450,
        longest=90,
        searched=1,
        unknown_share=0.02,
    )


def test_a_fault_names_the_winner_and_the_ids_to_write() -> None:
    best = candidate("layers [1, 3, 6]", replace(CLAIM, slots=(1, 3, 6), theta=5e5), 0.6, 0.2)
    (found,) = findings_of(verdict(best, (best,)), layers=8, ids=(1, 3, 6))
    assert found.severity is Severity.ERROR
    assert found.code == "wiring.slots"
    assert "capture physical layers [1, 3, 6]" in found.remedy
    assert "theta: 10000.0 should be 500000.0" in found.remedy
    assert "for sglang" in found.remedy
    assert "write [0, 2, 5]" in found.remedy
    assert "for vllm" in found.remedy
    assert "write [1, 3, 6]" in found.remedy
    text = " ".join(fact.text for fact in found.evidence)
    assert "+20.0 points (standard error 1.0, by request)" in text
    assert "The written ids [1, 3, 6] mean layers [1, 3, 6] to: " in text
    assert "vllm" in text
    assert (found.figures["positions"], found.figures["requests"]) == (450, 15)
    later = replace(verdict(best, (best,)), look=Look(names=("x",), requests=30, positions=900))
    (found,) = findings_of(later, layers=8)
    assert (found.figures["positions"], found.figures["requests"]) == (900, 30)


def test_no_fault_is_a_note_with_its_limits() -> None:
    worse = candidate("all layers +1", replace(CLAIM, slots=(1, 2, 3)), 0.3, -0.1)
    (found,) = findings_of(verdict(None, (worse,)), layers=8)
    assert found.severity is Severity.NOTE
    assert found.title == "The files' wiring is not beaten by any candidate."
    assert "450 positions of 15 requests" in found.evidence[-1].text


def test_a_candidate_ahead_within_error_is_said() -> None:
    ahead = candidate("theta 500000", replace(CLAIM, theta=5e5), 0.41, 0.01)
    (found,) = findings_of(verdict(None, (ahead,)), layers=8)
    assert "by more than three standard errors" in found.title


def test_what_was_not_seen_is_the_most_that_an_open_candidate_could_gain() -> None:
    worse = candidate("all layers +1", replace(CLAIM, slots=(1, 2, 3)), 0.3, -0.1)
    close = candidate("theta 500000", replace(CLAIM, theta=5e5), 0.4, -0.01)
    told = verdict(None, (close, worse)).unseen
    assert "1 of 2 candidates are told apart" in told
    assert "could lose at most 2.0 points to one of the others (theta 500000)" in told
    assert "More --requests" not in told
    assert "all 1 candidates are told apart" in verdict(None, (worse,)).unseen
    ahead = candidate("theta 500000", replace(CLAIM, theta=5e5), 0.4, 0.01)
    assert "More --requests or --max-tokens would settle it." in verdict(None, (ahead,)).unseen


def test_every_repair_is_a_finding_and_another_wire_that_gains_a_warning() -> None:
    slots = replace(CLAIM, slots=(1, 3, 6))
    first = candidate("layers [1, 3, 6]", slots, 0.6, 0.15)
    second = Candidate(
        change=Change(wire="theta", name="theta 500000", wiring=replace(slots, theta=5e5)),
        first=0.65, second=0.65, gain=0.05, error=0.01, z=5.0,
    )  # fmt: skip
    both = candidate("both", second.change.wiring, 0.65, 0.2)
    other = Candidate(
        change=Change(wire="pairing", name="a row late", wiring=replace(CLAIM, pairing=1)),
        first=0.45, second=0.45, gain=0.04, error=0.01, z=4.0,
    )  # fmt: skip
    made = replace(verdict(both, (first, other)), repairs=(first, second))
    found = findings_of(made, layers=8)
    assert [f.code for f in found] == ["wiring.slots", "wiring.theta", "wiring.pairing"]
    assert [f.severity for f in found] == [Severity.ERROR, Severity.ERROR, Severity.WARNING]
    assert [f.figures["explained"] for f in found] == pytest.approx([0.75, 0.25, 0.2])
    assert found[0].score > found[1].score > found[2].score
