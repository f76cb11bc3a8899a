"""docs/architecture.md against the program: layers, where torch is, files of a run, modules."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from specbench import conclude, folder, gpu_samples
from specbench.config import SpecConfig
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.summary import SummaryInput
from specbench.report import bundle
from specbench.report.plots import DRAWINGS
from tests.unit.report.sample_runs import PROVENANCE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under one heading of the page."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_layers_are_those_of_the_import_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["type"] == "layers")
    shown = section("Layers").split("```")[1].strip().splitlines()
    assert shown == [line.replace("specbench.", "") for line in layers]


def test_every_module_has_a_layer() -> None:
    shown = set(re.findall(r"\w+", section("Layers").split("```")[1]))
    modules = {path.stem for path in (ROOT / "specbench").iterdir() if is_code(path)}
    assert modules - {"__init__"} == shown


def is_code(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").is_file()


def imports_torch(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "torch" in text else ():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        if any(name.split(".")[0] == "torch" for name in names):
            return True
    return False


def test_torch_is_where_the_page_says() -> None:
    (sentence,) = re.findall(r"^torch lives under .*?\. No other", PAGE, re.MULTILINE | re.DOTALL)
    places = re.findall(r"`([\w/.]+)`", sentence)
    package = ROOT / "specbench"
    found = [
        str(path.relative_to(package)) for path in package.rglob("*.py") if imports_torch(path)
    ]
    assert all(any(name.startswith(place) for name in found) for place in places)
    assert [name for name in found if not name.startswith(tuple(places))] == []


def test_the_files_of_a_run_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    base, chain = SpecConfig.baseline(), SpecConfig.chain(3)
    given = SummaryInput(
        runs=(
            run_of(trace_of([0] * 4, depth=0), point_id="base"),
            run_of(trace_of([3, 0], depth=3), point_id="k3"),
        ),
        points={"base": base, "k3": chain},
        backend="inprocess",
        target="target",
        draft="draft",
    )
    monkeypatch.setattr(bundle, "plots", lambda summary: dict.fromkeys(DRAWINGS, b""))
    written = {*bundle.build(given, PROVENANCE), conclude.CAVEATS, conclude.VERDICTS}
    listed = re.findall(r"^\| (`.*?) \|", section("What a run leaves behind"), re.MULTILINE)
    names = [name for cell in listed for name in re.findall(r"`(.*?)`", cell)]
    assert set(names) == {*written, *folder.OURS, gpu_samples.FILE}
    assert len(names) == len(set(names))


def test_every_module_that_the_page_names_exists() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*\.py)`", PAGE)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / "specbench" / path).is_file()] == []
