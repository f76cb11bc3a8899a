import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from specbench import run
from specbench.metrics import drift_caveats, gpu_caveats, prompt_caveats, validity, window_caveats
from specbench.report.advice import ADVICE, advice

ROW = re.compile(r"^(\w+) +(note|warning|invalid) ", re.MULTILINE)
RAISED = re.compile(r"(?:_(?:note|warning|invalid)\(|code=)\s*\"(\w+)\"")
TABLES = (validity, prompt_caveats, window_caveats, drift_caveats, gpu_caveats)


@pytest.mark.parametrize("module", [*TABLES, run])
def test_every_code_that_is_raised_has_advice(module: ModuleType) -> None:
    raised = set(RAISED.findall(inspect.getsource(module)))
    assert raised
    assert raised <= set(ADVICE)


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


def test_the_page_of_rules_lists_every_code_as_the_modules_do() -> None:
    page = (Path(__file__).parents[3] / "docs" / "validity.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `(\w+)` \| (note|warning|invalid) \|", page, re.MULTILINE))
    tables = {row for module in TABLES for row in ROW.findall(module.__doc__ or "")}
    assert tables <= shown
    assert {code for code, _ in shown} == set(ADVICE)
