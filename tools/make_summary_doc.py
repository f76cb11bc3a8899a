"""docs/summary.md from the code and its words: python -m tools.make_summary_doc."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specbench.config import SpecConfig
from specbench.grid import Point
from specbench.metrics.breakdowns import CONTEXT_FROM, CYCLES_ALONE, OUTPUT_FROM
from specbench.metrics.energy import LEAST_SAMPLES
from specbench.metrics.lossless import SAMPLED_P, TIE, Verdict
from specbench.metrics.stats import LEAST_REQUESTS, LEAST_RUNS
from specbench.report.wording import triple

HERE = Path(__file__).parent
DOC = HERE.parent / "docs" / "summary.md"
WORDS: Mapping[str, Any] = tomllib.loads(
    (HERE / "summary_columns.toml").read_text(encoding="utf-8")
)
POINTS = {
    "base": SpecConfig.baseline(),
    "chain": SpecConfig.chain(3),
    "tree": SpecConfig(num_steps=3, topk=2, num_draft_tokens=8),
}
FACTS: Mapping[str, object] = {
    **{name: triple(spec) for name, spec in POINTS.items()},
    **{f"{name}_id": spec.point_id for name, spec in POINTS.items()},
    "again_id": Point(spec=POINTS["base"], again=True).point_id,
    "least_requests": LEAST_REQUESTS,
    "least_runs": LEAST_RUNS,
    "least_samples": LEAST_SAMPLES,
    "tie": f"{TIE:g}",
    "sampled_p": f"{SAMPLED_P:g}",
    "context": CONTEXT_FROM - 1,
    "output": OUTPUT_FROM - 1,
    "cycles": CYCLES_ALONE,
}


def document() -> str:
    """The whole page."""
    page = (HERE / "summary_page.md").read_text(encoding="utf-8")
    tables = {
        "summary": [_column(entry, "unit", "meaning", "empty") for entry in WORDS["summary"]],
        "breakdowns": [_column(entry, "meaning", "empty") for entry in WORDS["breakdowns"]],
        "verdicts": [_line(f"`{one.value}`", WORDS["verdicts"][one.value]) for one in Verdict],
        "kinds": [
            _line(f"`{kind['by']}`", kind["key"], kind["value"], kind["needs"])
            for kind in WORDS["kinds"]
        ],
    }
    return page.format(**FACTS, **{name: "\n".join(lines) for name, lines in tables.items()})


def described(table: str) -> Sequence[str]:
    """The columns of ``summary`` or ``breakdowns`` that have a line, in order."""
    return [name for entry in WORDS[table] for name in entry["columns"]]


def _column(entry: Mapping[str, Any], *cells: str) -> str:
    names = ", ".join(f"`{name}`" for name in entry["columns"])
    return _line(names, *(entry.get(cell, "") for cell in cells))


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.format(**FACTS) for cell in cells) + " |"


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")
