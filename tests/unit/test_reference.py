from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench import reference
from specbench.errors import OutputError
from specbench.reference import Reference
from tests.unit.metrics.test_comparison import curve, units
from tests.unit.test_conclude import _run


def test_a_file_holds_all_that_a_run_does(tmp_path: Path) -> None:
    _run(tmp_path / "run").close()
    of_run = reference.read(tmp_path / "run")
    assert len(of_run.fingerprint) == 64
    assert {one.key.point_id for one in of_run.curves} == {"base", "k3"}
    assert of_run.topics["workload"] == {}

    reference.save(of_run, tmp_path / "kept.json")
    assert reference.read(tmp_path / "kept.json") == of_run
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.json", "run"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("[1, 2]", "is no reference"),
        ('{"schema": "specbench reference 99"}', "is no reference"),
        ("[" * 100_000, "cannot be read"),
        ('{"schema": "specbench reference 1"}', "'fingerprint' is missing"),
        ('{"schema": "specbench reference 1", "fingerprint": "a", "curves": [1]}', "is damaged"),
        (
            '{"schema": "specbench reference 1", "fingerprint": "a", "topics": {"a": 1}}',
            "a=1 is a int. A table",
        ),
        (
            '{"schema": "specbench reference 1", "fingerprint": "a", "topics": {"a": {"b": null}}}',
            "a.b=None is a NoneType",
        ),
        ('{"schema": "specbench reference 1", "fingerprint": NaN}', "NaN is no number"),
    ],
)
def test_what_is_no_reference_is_one_error(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text)
    with pytest.raises(OutputError, match=says):
        reference.read(path)


def test_a_wrong_type_inside_a_curve_is_found(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    reference.save(Reference(fingerprint="a", curves=(curve(units=units(3)),)), path)
    content = json.loads(path.read_text())
    content["curves"][0]["units"][0]["steps"] = "many"
    path.write_text(json.dumps(content))
    with pytest.raises(OutputError, match="is damaged"):
        reference.read(path)


@pytest.mark.parametrize("count", [-1, 10**400])
def test_a_count_that_cannot_be_is_found(tmp_path: Path, count: int) -> None:
    path = tmp_path / "kept.json"
    reference.save(Reference(fingerprint="a", curves=(curve(units=units(3)),)), path)
    content = json.loads(path.read_text())
    content["curves"][0]["units"][0]["steps"] = count
    path.write_text(json.dumps(content))
    with pytest.raises(OutputError, match=r"is damaged: a count of \w+ is"):
        reference.read(path)


def test_an_arm_that_stands_twice_is_found(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    reference.save(Reference(fingerprint="a", curves=(curve(units=units(3)),) * 2), path)
    with pytest.raises(OutputError, match="an arm stands in it twice"):
        reference.read(path)


def test_a_missing_path_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be read"):
        reference.read(tmp_path / "nothing")
