"""The rule of speedup above accept length on 440 published points, 25 of them impossible."""

import csv
import dataclasses
from pathlib import Path

import pytest

from specbench.estimate import Estimate, Evidence, Severity
from specbench.metrics.figures import figures
from specbench.metrics.validity import caveats
from tests.unit.metrics.test_validity import K3, arm_of, traces

FILE = Path(__file__).parents[1] / "data" / "specbundle_points.csv"


@pytest.fixture(scope="module")
def points() -> list[dict[str, str]]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def estimate(value: str, unit: str) -> Estimate:
    return Estimate(
        value=float(value), low=None, high=None, n=1, unit=unit, evidence=Evidence.TOTALS
    )


def test_the_impossible_points_are_flagged_and_no_others(points: list[dict[str, str]]) -> None:
    arm, plain = arm_of(traces()), arm_of(traces(depth=0))
    seen = dataclasses.replace(figures(arm, K3, plain), decomposition=None)
    flagged = []
    for index, point in enumerate(points):
        shown = dataclasses.replace(
            seen,
            accept_length=estimate(point["accept_length"], "tokens/step"),
            speedup=estimate(point["speedup"], "x"),
        )
        found = caveats(arm, K3, shown, baseline=plain, lossless=None)
        if any(c.code == "incomparable_baseline" for c in found):
            assert all(
                c.severity is Severity.INVALID for c in found if c.code == "incomparable_baseline"
            )
            flagged.append(index)
    expected = [
        index
        for index, point in enumerate(points)
        if float(point["speedup"]) > float(point["accept_length"])
    ]
    assert (len(points), len(flagged)) == (440, 25)
    assert flagged == expected
