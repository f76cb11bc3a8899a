"""From training accuracy to accept length: worked figures, and a split that adds up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.doctor.findings import Severity
from specbench.doctor.gap import (
    FRAMEWORKS,
    Measured,
    constant_share,
    implied_length,
    split_gap,
)
from specbench.doctor.gap_finding import gap_finding, inferred
from specbench.errors import ConfigError

SHARE = st.floats(0, 1)


def test_one_accuracy_is_taken_for_every_step() -> None:
    want = 1 + sum(0.747**k for k in range(1, 6))
    for name in FRAMEWORKS:
        assert implied_length([0.747], FRAMEWORKS[name], 5) == pytest.approx(want)


def test_cumulative_and_single_steps_differ() -> None:
    steps = [0.8, 0.7, 0.6]
    assert implied_length(steps, FRAMEWORKS["speculators"], 3) == pytest.approx(3.1)
    want = 1 + 0.8 + 0.8 * 0.7 + 0.8 * 0.7 * 0.6
    assert implied_length(steps, FRAMEWORKS["specforge"], 3) == pytest.approx(want)
    assert implied_length(steps, FRAMEWORKS["specforge"], 2) == pytest.approx(2.36)


NAMES = ("restricted", "full", "template", "unknown", "engine", "off_policy", "at_steps")


@given(SHARE, st.tuples(*[SHARE] * len(NAMES)), st.sampled_from(sorted(FRAMEWORKS)))
def test_the_terms_add_up(trained: float, shares: tuple[float, ...], name: str) -> None:
    measured = Measured(**dict(zip(NAMES, shares, strict=True)))
    gap = split_gap([trained], FRAMEWORKS[name], 3, measured)
    assert measured.engine is not None
    assert gap.total == pytest.approx(trained - measured.engine)
    assert all(term.points is not None for term in gap.terms)
    assert sum(term.points or 0 for term in gap.terms) == pytest.approx(gap.total)


def test_what_is_not_measured_is_said() -> None:
    gap = split_gap([0.98], FRAMEWORKS["specforge"], 3, Measured(engine=0.1))  # SpecForge 533
    missing = ["off-policy text", "template", "step starts", "engine"]
    assert [t.name for t in gap.terms if t.points is None] == missing
    assert "holds what is not measured" in gap.terms[-1].why
    assert gap.terms[-1].points == pytest.approx(0.88)
    assert gap_finding(gap, FRAMEWORKS["specforge"], [0.98]).severity is Severity.WARNING


def test_a_first_position_taken_from_the_length_is_said_to_be_inferred() -> None:
    one = FRAMEWORKS["specforge"]
    gap = split_gap([0.747], one, 15, Measured(), served=1.9)
    assert gap.inferred == pytest.approx(0.474, abs=5e-4)
    told = "served 47.4 % is inferred from the accept length, taking acceptance equal at all"
    assert inferred(gap).startswith(told)
    assert told in gap_finding(gap, one, [0.747]).evidence[1].text
    counted = split_gap([0.747], one, 15, Measured(engine=0.5), served=1.9)
    assert (counted.inferred, inferred(counted)) == (None, "")
    where = [fact.where for fact in gap_finding(counted, one, [0.747]).evidence]
    assert "first position" not in where


def test_words_outside_the_map_are_a_part_of_the_definition() -> None:
    measured = Measured(
        restricted=0.75, full=0.70, unknown=0.04, template=0.70, engine=0.66, off_policy=0.78,
        at_steps=0.66,
    )  # fmt: skip
    gap = split_gap([0.78], FRAMEWORKS["speculators"], 3, measured)
    points = {term.name: term.points for term in gap.terms}
    assert points["out of vocabulary"] == pytest.approx(0.03)
    assert points["definition"] == pytest.approx(0.02)
    assert points["off-policy text"] == pytest.approx(0.03)
    assert points["step starts"] == pytest.approx(0.04)
    assert points["engine"] == pytest.approx(0)
    assert points["unexplained"] == pytest.approx(0)


def test_other_text_is_not_blamed_unseen() -> None:
    """Without the training data nobody knows whether text or the training's own count differs."""
    measured = Measured(restricted=0.70, full=0.70, at_steps=0.65, engine=0.65)
    gap = split_gap([0.90], FRAMEWORKS["specforge"], 3, measured)
    points = {term.name: term.points for term in gap.terms}
    assert points["off-policy text"] is None
    assert points["unexplained"] == pytest.approx(0.20)
    assert (
        "+20.0 of it between the training's figure and the target's own text" in gap.terms[-1].why
    )
    finding = gap_finding(gap, FRAMEWORKS["specforge"], [0.90])
    assert "off-policy text, template" in finding.remedy
    known = Measured(
        restricted=0.70, full=0.70, at_steps=0.65, engine=0.65, off_policy=0.88, template=0.70
    )
    gap = split_gap([0.90], FRAMEWORKS["specforge"], 3, known)
    points = {term.name: term.points for term in gap.terms}
    assert points["off-policy text"] == pytest.approx(0.18)
    assert points["unexplained"] == pytest.approx(0.02)
    assert "the same data scored here" in gap.terms[-1].why


def test_a_length_stands_in_for_a_share() -> None:
    assert constant_share(1.9, 15) == pytest.approx(0.474, abs=1e-3)
    gap = split_gap([0.747], FRAMEWORKS["specforge"], 15, Measured(), served=1.9)
    assert gap.total == pytest.approx(0.747 - 0.474, abs=1e-3)


def test_impossible_figures_are_refused() -> None:
    for bad in ([], [1.2], [float("nan")]):
        with pytest.raises(ConfigError):
            implied_length(bad, FRAMEWORKS["eagle"], 3)
    with pytest.raises(ConfigError, match="rises"):
        implied_length([0.5, 0.6], FRAMEWORKS["speculators"], 2)
    with pytest.raises(ConfigError, match="names 2 steps"):
        implied_length([0.5, 0.4], FRAMEWORKS["eagle"], 3)
    with pytest.raises(ConfigError):
        constant_share(5.0, 3)
