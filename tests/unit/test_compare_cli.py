from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from specbench import reference
from specbench.cli import main
from specbench.fingerprint import SCOPES
from specbench.metrics.curves import Curve
from specbench.reference import Reference
from tests.unit.metrics.test_comparison import curve, units

TOPICS = {topic: {topic: "same"} for topic in SCOPES}


def kept(path: Path, one: Curve, **topics: str) -> str:
    changed = {**TOPICS, **{name: {name: value} for name, value in topics.items()}}
    reference.save(Reference(fingerprint="f" * 64, topics=changed, curves=(one,)), path)
    return str(path)


@pytest.fixture
def base(tmp_path: Path) -> str:
    return kept(tmp_path / "base.json", curve(units=units(30)))


def test_the_gate_ends_with_one_on_a_regression_beyond_the_margin(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head = kept(tmp_path / "head.json", curve(units=units(28)))
    assert main(["compare", base, head]) == 1
    assert "HEAD against BASE: worse" in capsys.readouterr().out
    assert main(["compare", base, head, "--margin", "10%"]) == 0
    assert main(["compare", head, base]) == 0


def test_equal_runs_are_the_same(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", base, base]) == 0
    assert "HEAD against BASE: same (2 same; margin 3 %)." in capsys.readouterr().out


def test_another_machine_keeps_times_apart_until_it_is_accepted(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head = kept(tmp_path / "head.json", curve(units=units(30)), machine="other")
    assert main(["compare", base, head]) == 0
    shown = capsys.readouterr().out
    assert "machine differs: machine same -> machine other; times are not compared" in shown
    assert "1 same, 1 not comparable" in shown
    assert main(["compare", base, head, "--accept", "machine"]) == 0
    assert "2 same" in capsys.readouterr().out


def test_markdown_and_reference_are_written(tmp_path: Path, base: str) -> None:
    page, again = tmp_path / "pr.md", tmp_path / "again.json"
    flags = ["--markdown", str(page), "--save-reference", str(again)]
    assert main(["compare", base, base, *flags]) == 0
    text = page.read_text()
    assert text.startswith("## specbench compare\n\n**HEAD against BASE: same")
    assert "| k3 w b1 t0 | accept length | 3.00 [2.97, 3.03]" in text
    assert reference.read(again) == reference.read(Path(base))


def test_a_run_alone_can_be_kept(tmp_path: Path, base: str) -> None:
    assert main(["compare", base, "--save-reference", str(tmp_path / "kept.json")]) == 0
    assert reference.read(tmp_path / "kept.json") == reference.read(Path(base))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "nothing to compare with"),
        (["--save-reference", "x", "--accept", "machine"], "--accept: has no meaning without HEAD"),
        (
            ["--save-reference", "x", "--margin", "1%", "--markdown", "y"],
            "--margin, --markdown: has no meaning without HEAD",
        ),
        (["{base}", "--margin", "x"], "--margin x"),
        (["{base}", "--margin", "nan"], "--margin nan"),
        (["{base}", "--margin", "100%"], "--margin 100%"),
        (["{base}", "--accept", "weather"], "--accept weather is no topic"),
        (["{base}", "--accept", "draft"], "--accept draft is no topic"),
        (["/nowhere/at/all"], "cannot be read"),
        (["{base}", "--markdown", "/nowhere/at/all.md"], "cannot"),
    ],
)
def test_wrong_use_is_one_line_and_two(
    base: str, flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [flag.format(base=base) for flag in flags]
    assert main(["compare", base, *words]) == 2
    said = capsys.readouterr().err
    assert says in " ".join(said.split())
    assert "Traceback" not in said


def test_arms_of_one_side_are_named(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = curve()
    other = dataclasses.replace(other, key=dataclasses.replace(other.key, point_id="k5"))
    head = kept(tmp_path / "head.json", other)
    assert main(["compare", base, head]) == 1
    said = capsys.readouterr().out
    assert "not comparable (nothing in both" in said
    assert "Only in BASE, not compared: k3 w b1 t0" in said
    assert "Only in HEAD, not compared: k5 w b1 t0" in said


def test_what_could_not_be_compared_is_no_pass_unless_that_is_said(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head = kept(tmp_path / "head.json", curve(units=units(30)), target="other")
    assert main(["compare", base, head]) == 1
    said = capsys.readouterr().out
    assert "HEAD against BASE: not comparable" in said
    assert "Exit code 1: nothing was compared, so this is no pass (--allow-not-comparable" in said
    assert main(["compare", base, head, "--allow-not-comparable"]) == 0
    assert "Exit code" not in capsys.readouterr().out
    worse = kept(tmp_path / "worse.json", curve(units=units(20)))
    assert main(["compare", base, worse, "--allow-not-comparable"]) == 1


@pytest.mark.parametrize("changed", [{"speedup": None}, {"invalid": ("errors",)}])
def test_a_figure_that_only_head_lacks_is_no_pass(
    tmp_path: Path, base: str, changed: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = curve(units=units(30), **changed)
    other = dataclasses.replace(curve().key, point_id="k5")
    sound = dataclasses.replace(curve(units=units(30)), key=other)
    reference.save(
        Reference(
            fingerprint="f" * 64,
            topics={topic: {topic: "same"} for topic in SCOPES},
            curves=(broken, sound),
        ),
        tmp_path / "head.json",
    )
    both = Reference(
        fingerprint="f" * 64,
        topics={topic: {topic: "same"} for topic in SCOPES},
        curves=(curve(units=units(30)), sound),
    )
    reference.save(both, tmp_path / "both.json")
    words = ["compare", str(tmp_path / "both.json"), str(tmp_path / "head.json")]
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "same, " in said
    assert "speedup of k3 w b1 t0" in said.rpartition("Exit code 1: not compared:")[2]
    assert "k5" not in said.rpartition("Exit code 1:")[2]
    assert main([*words, "--allow-not-comparable"]) == 0
    assert main(["compare", words[2], words[1]]) == 0  # BASE never had it


def test_a_gate_over_too_few_prompts_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = kept(tmp_path / "few.json", curve(units=units(30)[:5]))
    half = kept(tmp_path / "half.json", curve(units=units(15)[:5]))
    for head in (half, few):
        assert main(["compare", few, head]) == 1
        assert "not comparable (under 12 prompts in both runs: no interval" in " ".join(
            capsys.readouterr().out.split()
        )
    assert main(["compare", few, half, "--allow-not-comparable"]) == 0


def arms(path: Path, *ids: str, **changed: object) -> str:
    """A reference whose arms are ``ids``; ``changed`` holds for the last of them."""
    found = []
    for name in ids:
        of = changed if name == ids[-1] else {}
        one = curve(units=units(30), **of)
        found.append(dataclasses.replace(one, key=dataclasses.replace(one.key, point_id=name)))
    reference.save(Reference(fingerprint="f" * 64, topics=TOPICS, curves=tuple(found)), path)
    return str(path)


def test_an_arm_that_only_base_measured_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = arms(tmp_path / "many.json", "k3", "k5", "k7")
    one = arms(tmp_path / "one.json", "k3")
    assert main(["compare", many, one]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "HEAD against BASE: same (2 same, arms of BASE that HEAD lacks: 2; margin 3 %)" in said
    assert "Only in BASE, not compared: k5 w b1 t0, k7 w b1 t0" in said
    assert (
        "Exit code 1: not compared: k5 w b1 t0 (not in HEAD), k7 w b1 t0 (not in HEAD), so" in said
    )
    assert main(["compare", many, one, "--allow-not-comparable"]) == 0
    capsys.readouterr()
    assert main(["compare", one, many]) == 0  # arms of HEAD alone are named
    assert "Only in HEAD, not compared: k5 w b1 t0, k7 w b1 t0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changed",
    [
        {"invalid": ("errors",)},
        {"accept_length": None, "speedup": None},  # as plain decoding's second arm has it
    ],
)
def test_an_arm_that_base_could_not_measure_is_no_reason(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    base = arms(tmp_path / "base.json", "k3", "k5", **changed)
    assert main(["compare", base, arms(tmp_path / "head.json", "k3")]) == 0


def test_a_reference_of_an_older_version_is_read_and_what_it_lacks_is_named(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.json"
    new = json.loads(Path(base).read_text())
    for topic in ("verification", "draft reading"):
        del new["topics"][topic]
    old.write_text(json.dumps(new))
    assert main(["compare", str(old), base, "--markdown", str(tmp_path / "pr.md")]) == 0
    said = capsys.readouterr().out
    assert "verification may differ: not recorded -> verification same" in said
    assert "2 same" in said
    page = (tmp_path / "pr.md").read_text()
    assert "not recorded -> verification same (not known to be the same)" in page
    assert main(["compare", str(old), str(old)]) == 0
    assert "may differ" not in capsys.readouterr().out


def test_times_that_machines_keep_apart_are_no_reason_in_an_arm_of_base_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = arms(tmp_path / "base.json", "k3", "k5", accept_length=None)
    head = arms(tmp_path / "head.json", "k3")
    assert main(["compare", base, head]) == 1
    assert "HEAD lacks" in capsys.readouterr().out
    there = json.loads(Path(head).read_text())
    there["topics"]["machine"] = {"cpu": "another"}
    Path(head).write_text(json.dumps(there))
    assert main(["compare", base, head]) == 0
    assert "HEAD lacks" not in capsys.readouterr().out
