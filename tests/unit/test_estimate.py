"""Estimates carry their interval and what they rest on."""

from __future__ import annotations

from specbench.estimate import Caveat, Estimate, Evidence, Severity


def _estimate(low: float | None, high: float | None) -> Estimate:
    return Estimate(value=1.1, low=low, high=high, n=20, unit="x", evidence=Evidence.STEPS)


def test_only_a_known_interval_can_exclude_a_value() -> None:
    assert _estimate(1.05, 1.2).excludes(1.0)
    assert not _estimate(0.95, 1.2).excludes(1.0)
    assert not _estimate(None, None).excludes(1.0)


def test_caveats_are_added_and_kept() -> None:
    one = Caveat(code="cold_start", severity=Severity.NOTE, text="The first block was cold.")
    two = Caveat(code="too_few_steps", severity=Severity.WARNING, text="Only 12 steps.")
    estimate = _estimate(None, None).with_caveats([one]).with_caveats([two])
    assert [c.code for c in estimate.caveats] == ["cold_start", "too_few_steps"]
