"""Ranking, registration and output of findings."""

from __future__ import annotations

import json
import math

import pytest

from specbench.doctor.catalogue import check_code, kinds
from specbench.doctor.findings import (
    Fact,
    Finding,
    Severity,
    evidence_score,
    has_error,
    rank,
    to_json,
)
from specbench.doctor.report import explain, markdown, meaning, verdict_line
from specbench.errors import ConfigError


def finding(
    code: str = "fc.width", severity: Severity = Severity.ERROR, score: float = 0.5
) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        title="fc | reads <b>",
        evidence=(Fact(text="[256, 512]", where="draft: fc.weight"),),
        remedy="Name as many layers.",
        figures={"fc_in": 512, "share": 0.25},
        claims="physical [2, 4]",
        score=score,
    )


def test_severity_comes_before_score() -> None:
    low, high = finding("ids.range", score=0.1), finding("ids.order", Severity.NOTE, 1.0)
    best = finding("map.direct", score=0.9)
    assert rank([high, low, best, best]) == (best, low, high)
    assert has_error([high, low])
    assert not has_error([high])


def test_a_code_must_be_registered() -> None:
    with pytest.raises(KeyError):
        finding("nonsense")
    with pytest.raises(ValueError, match="score"):
        finding(score=1.5)
    assert finding("wiring.anything").failures
    with pytest.raises(ConfigError, match=r"fc\.width"):
        check_code("fc.widht")


def test_every_failure_of_the_specification_has_a_code() -> None:
    """F1 to F60, but for M-RoPE's and such there is always a shape at least."""
    known = {failure for kind in kinds().values() for failure in kind.failures}
    assert known == {f"F{n}" for n in range(1, 61)}
    assert all(kind.why for kind in kinds().values())


def test_json_is_plain() -> None:
    table = json.loads(json.dumps(to_json(finding()), allow_nan=False))
    assert table["failures"] == ["F6", "F7", "F37"]
    assert table["evidence"] == [{"text": "[256, 512]", "where": "draft: fc.weight"}]


def test_explanation_and_markdown() -> None:
    told = explain([finding()], "fc.width")
    for part in ("F6, F7, F37", "draft: fc.weight: [256, 512]", "share 0.25", "To do: Name"):
        assert part in told
    assert "F6, F7, F37; docs/failures.md has each" in told
    assert "was not found here" in explain([], "fc.width")
    alone = meaning("fc.width")
    assert "- F37: With pipeline stages only the last one" in alone
    assert "Nothing was looked at" in alone
    assert "not found" not in alone
    text = markdown([finding(), finding("ids.order", Severity.NOTE)], ["all right"])
    assert "fc \\| reads &lt;b>" in text
    assert "<b>" not in text
    assert "- all right" in text
    assert "### fc.width" in text
    assert "### ids.order" not in text
    assert verdict_line([finding("ids.order", Severity.NOTE)]) == "1 note; no fault shown."


def test_a_cause_stands_before_its_consequences() -> None:
    shape = finding("shape.one", Severity.ERROR, 1.0)
    cause = finding("wiring.slots", Severity.ERROR, 0.2)
    assert rank([shape, cause]) == (cause, shape)
    warned = finding("vocab.coverage", Severity.WARNING, 0.2)
    assert rank([shape, warned]) == (warned, shape)
    note = finding("ids.engines", Severity.NOTE, 1.0)
    assert rank([note, shape]) == (shape, note)
    parity, engine = finding("parity.cache", score=0.9), finding("engine.extend", score=0.3)
    unnamed = finding("engine.unnamed", score=1.0)
    assert rank([parity, engine, unnamed]) == (engine, parity, unnamed)


def test_evidence_is_the_part_explained_and_how_sure_it_is() -> None:
    assert evidence_score(1.0, 3.0) == 0.5
    assert evidence_score(0.4, math.inf) == 0.4
    assert evidence_score(0.9, 12.0) > evidence_score(0.9, 4.0) > evidence_score(0.3, 4.0)
    assert evidence_score(1.0, -5.0) == 0.0
