import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from specbench.metrics import (
    drift_caveats,
    goodput,
    gpu_caveats,
    prompt_caveats,
    validity,
    window_caveats,
)
from specbench.report.advice import ADVICE, advice
from tests.unit.report.caveat_codes import raised_codes

PAGE = (Path(__file__).parents[3] / "docs" / "validity.md").read_text(encoding="utf-8")
ROW = re.compile(r"^(\w+) +(note|warning|invalid) ", re.MULTILINE)
SHOWN = re.compile(r"^\| `(\w+)` \| (note|warning|invalid) \| (.+) \| (.+) \|$", re.MULTILINE)
RAISED = re.compile(r"(?:_(?:note|warning|invalid)\(|code=)\s*\"(\w+)\"")
TABLES = (validity, prompt_caveats, window_caveats, drift_caveats, gpu_caveats, goodput)


@pytest.fixture(scope="module")
def raised() -> set[tuple[str, str]]:
    """Code and severity of every caveat that the package raises."""
    return raised_codes()


def test_every_kind_of_source_is_followed(raised: set[tuple[str, str]]) -> None:
    assert {
        ("few_blocks", "note"),  # a helper of the module
        ("gpu_assumed", "note"),  # Caveat(code=...)
        ("lossy_thresholds", "note"),  # a constant
        ("fc_bias", "warning"),  # Keys.warn
        ("gpu_counter_lost", "warning"),  # a helper of a helper, not in first place
    } <= raised


def test_advice_is_for_the_codes_that_are_raised_and_for_no_others(
    raised: set[tuple[str, str]],
) -> None:
    assert {code for code, _ in raised} == set(ADVICE)


def test_the_page_of_rules_lists_every_code_with_its_severity_and_advice(
    raised: set[tuple[str, str]],
) -> None:
    rows = SHOWN.findall(PAGE)
    assert len({code for code, *_ in rows}) == len(rows)
    assert {(code, severity) for code, severity, *_ in rows} == raised
    assert {code: todo for code, _, _, todo in rows} == ADVICE


@pytest.mark.parametrize("module", TABLES)
def test_every_code_is_in_the_table_of_its_module(module: ModuleType) -> None:
    listed = {code for code, _ in ROW.findall(module.__doc__ or "")}
    assert listed == set(RAISED.findall(inspect.getsource(module)))


def test_every_code_is_injected_by_a_test() -> None:
    here = Path(__file__)
    told = "".join(
        path.read_text(encoding="utf-8")
        for path in here.parents[2].rglob("test_*.py")
        if path != here
    )
    assert [code for code in ADVICE if not re.search(rf"\b{code}\b", told, re.IGNORECASE)] == []


def test_a_code_from_elsewhere_has_none() -> None:
    assert advice("capture_by_hand") == ""
