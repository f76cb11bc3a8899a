from __future__ import annotations

from specbench.fingerprint import Difference
from specbench.metrics.comparison import compare
from specbench.report.comparing import document, table, verdict
from specbench.report.markdown import markdown
from tests.unit.metrics.test_comparison import curve, held, units


def test_the_verdict_counts_every_change() -> None:
    result = held(curve(units=units(30)), curve(units=units(20)), margin=0.025)
    assert verdict(result) == "HEAD against BASE: worse (1 worse, 1 same; margin 2.5 %)."
    none = compare([], [], (), margin=0.03)
    assert verdict(none) == "HEAD against BASE: not comparable (nothing in both; margin 3 %)."


def test_the_page_says_what_differs_and_what_that_means() -> None:
    result = held(
        curve(),
        curve(lossless="lossy"),
        Difference(topic="draft", base="a", head="b"),
        Difference(topic="machine", base="x", head="y"),
    )
    page = markdown(document(result, "old", "new"))
    assert "BASE: old. HEAD: new." in page
    assert "- **draft**: a -&gt; b (the change under test)" in page or (
        "- **draft**: a -> b (the change under test)" in page
    )
    assert "(times are not comparable)" in page
    assert "was exact, is lossy" in page
    assert "<details>" not in page


def test_categories_are_folded_away() -> None:
    part = curve(category="code", units=units(30))
    result = compare([curve(), part], [curve(), part], (), margin=0.03)
    page = markdown(document(result, "old", "new"))
    assert "<details><summary>by category (shown, not judged)" in page
    assert "| k3 w b1 t0, code | accept length" in page


def test_a_row_has_its_reason() -> None:
    result = held(curve(), curve(speedup=None))
    (row,) = (one for one in table(result.rows).rows if one[1] == "speedup")
    assert row[2:] == ("2.00 [1.98, 2.02]", "–", "–", "not comparable (not measured in HEAD)")


def test_the_brackets_of_a_run_are_not_those_of_the_ratio() -> None:
    result = held(curve(units=units(30)), curve(units=units(30)))
    page = markdown(document(result, "old", "new"))
    assert "of BASE and HEAD, each run's own 95 % interval; of HEAD ÷ BASE, one widened" in page
