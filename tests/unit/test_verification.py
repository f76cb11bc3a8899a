"""Settings of verification: what is refused, and what is called lossy."""

from __future__ import annotations

import pytest

from specbench.config import EngineConfig
from specbench.errors import ConfigError
from specbench.estimate import Severity
from specbench.verification import LOSSY_THRESHOLDS, Verification, VerifyRules


@pytest.mark.parametrize("name", ["threshold_single", "threshold_acc"])
@pytest.mark.parametrize("value", [0.0, -0.1, 1.01, float("nan"), float("inf")])
def test_thresholds_outside_their_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"{name}=\S+ is outside \(0, 1\]"):
        VerifyRules(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=name):
        EngineConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", list(Verification))
def test_only_target_only_has_thresholds_and_trees(method: Verification) -> None:
    rules = VerifyRules(method=method)
    rules.check(1)
    assert rules.loss == ""
    assert rules.caveats == ()
    if method is Verification.TARGET_ONLY:
        rules.check(4)
        return
    with pytest.raises(ConfigError, match=f"verification={method.value} checks chains, but topk=4"):
        rules.check(4)
    with pytest.raises(ConfigError, match=r"threshold_acc=\S+ does nothing"):
        VerifyRules(method=method, threshold_acc=0.9)


def test_thresholds_below_one_are_named() -> None:
    assert EngineConfig(threshold_acc=0.9).rules.loss == "threshold_acc=0.9, below 1"
    both = VerifyRules(threshold_single=0.5, threshold_acc=0.25)
    assert both.loss == "threshold_single=0.5 and threshold_acc=0.25, below 1"
    (caveat,) = both.caveats
    assert (caveat.code, caveat.severity) == (LOSSY_THRESHOLDS, Severity.NOTE)
    assert caveat.text.startswith(both.loss)


def test_drafts_are_drawn_where_their_distribution_is_used() -> None:
    drawn = {method for method in Verification if VerifyRules(method=method).draws_drafts}
    assert drawn == {Verification.REJECTION, Verification.BLOCK}
