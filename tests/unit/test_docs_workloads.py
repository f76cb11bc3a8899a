"""docs/workloads.md against the program: kinds, their keys, the shipped sets, the example line."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from specbench.prompts.datasets import SCHEMES
from specbench.prompts.native import Manifest, read_prompts
from specbench.prompts.prompt import SYNTHETIC
from specbench.workload import load_workload, shipped
from tools import make_workloads

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAIN = {"text", "raw", SYNTHETIC}


def table(title: str) -> dict[str, list[str]]:
    """Rows of the first table under a heading: what its first cell names, and the other cells."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", section, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}


def test_the_kinds_are_those_of_the_program() -> None:
    assert set(table("Kinds")) == {*SCHEMES, SYNTHETIC}


@pytest.mark.parametrize("kind", sorted(set(SCHEMES) - PLAIN))
def test_the_keys_of_a_kind(kind: str) -> None:
    named = set(re.findall(r"`(\w+)`", table("Kinds")[kind][1]))
    if kind == "openai":  # the page names what is read; the rest are settings
        assert named <= SCHEMES[kind].keys
    else:
        assert named == SCHEMES[kind].keys


def test_the_readme_names_every_kind_and_shipped_set() -> None:
    (entry,) = re.findall(r"^- Workloads.*?(?=^- )", README, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(?:--workload )?([\w-]+)(?::\w*)?`", entry))
    assert named == {*SCHEMES, SYNTHETIC, *shipped()}


def test_the_native_form(tmp_path: Path) -> None:
    (line,) = re.findall(r"```json\n(.*?\n)```", PAGE, re.DOTALL)
    (tmp_path / "prompts.jsonl").write_text(line, encoding="utf-8")
    (prompt,) = read_prompts(tmp_path / "prompts.jsonl")
    assert list(prompt.turns) == json.loads(line)["turns"]
    rows = table("The native form")
    whole = dict.fromkeys(rows, "x") | {"turns": ["x"], "held_out": True}
    (tmp_path / "whole.jsonl").write_text(json.dumps(whole), encoding="utf-8")
    read_prompts(tmp_path / "whole.jsonl")
    (told,) = re.findall(r"^`workload.json` describes.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert {field.name for field in fields(Manifest)} == set(
        re.findall(r"`(\w+)`(?: \(|,|\.)", told)
    )


def test_the_shipped_sets() -> None:
    rows = table("The shipped sets")
    assert set(rows) == set(shipped())
    for name, (prompts, turns) in rows.items():
        found = load_workload(name)
        assert prompts.split()[0].rstrip(":") == str(len(found.prompts))
        lengths = {len(prompt.turns) for prompt in found.prompts}
        assert sorted(lengths) == sorted({int(one) for one in turns.split(" to ")})


def test_the_larger_default_that_the_page_makes(tmp_path: Path) -> None:
    (asked,) = re.findall(r"--per-category (\d+)", PAGE)
    (made,) = re.findall(r"--workload \./more/([\w-]+)", PAGE)
    make_workloads.make_default(tmp_path, ROOT / "workloads" / "documents.jsonl", int(asked))
    assert [path.name for path in tmp_path.iterdir()] == [made]
    (most,) = re.findall(r"multiples of 20 up to (\d+)", PAGE)
    times = make_workloads.COLLECTED // max(make_workloads.FROM_DOCUMENTS.values())
    assert int(most) == times * make_workloads.PER_CATEGORY
