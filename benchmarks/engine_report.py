"""What benchmarks/engine.py found, as a table on the screen and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PARTS = ("step_ms", "draft_ms", "verify_ms", "extend_ms", "other_ms", "weights_mb", "floor_ms")

Cells = list[list[str]]


def speed_table(rows: Sequence[dict[str, Any]]) -> Cells:
    """Tokens per second and ratios; the first line names the columns."""
    references = list(rows[0]["over"])
    table = [["batch", "arm", "tok/s", *(f"× {name}" for name in references), "same tokens"]]
    for row in rows:
        ratios = [_cell(row["over"][name]) for name in references]
        table.append(
            [str(row["batch"]), row["arm"], f"{row['tokens_per_s']:.0f}", *ratios,
             row["same_output"]]
        )  # fmt: skip
    return table


def step_table(rows: Sequence[dict[str, Any]]) -> Cells:
    """Where a median step goes, of the engine's own arms."""
    names = [part.replace("_", " ") for part in PARTS]
    table = [["batch", "arm", "τ", *names, "× floor"]]
    for row in rows:
        if "step_ms" in row:
            cells = [f"{row[part]:.2f}" for part in PARTS]
            table.append(
                [str(row["batch"]), row["arm"], f"{row['accept_length']:.2f}", *cells,
                 f"{row['over_floor']:.2f}"]
            )  # fmt: skip
    return table


def preface(report: dict[str, Any]) -> str:
    """What was measured, in one sentence."""
    facts = report["device"]
    return (
        f"{report['prompts']} prompts, {report['tokens']} tokens a pass, "
        f"{report['left_out_looping']} looping left out; {facts['dtype']}, weights "
        f"{facts['weights']}, {facts['threads']} thread(s), torch {facts['torch']}, "
        f"kernels {facts['kernels']}; weights are read at "
        f"{report['read_bandwidth_gb_s']:.1f} GB/s."
    )


def as_text(report: dict[str, Any]) -> str:
    """Both tables with aligned columns."""
    tables = speed_table(report["arms"]), step_table(report["arms"])
    return "\n\n".join([preface(report), *(_aligned(table) for table in tables)])


def as_markdown(report: dict[str, Any]) -> str:
    """Both tables as Markdown."""
    tables = speed_table(report["arms"]), step_table(report["arms"])
    return "\n\n".join([preface(report), *(_piped(table) for table in tables)]) + "\n"


def _cell(value: float | None) -> str:
    return "absent" if value is None else f"{value:.2f}"


def _aligned(table: Cells) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 1 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in table
    )


def _piped(table: Cells) -> str:
    rule = ["---" if i == 1 else "---:" for i in range(len(table[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (table[0], rule, *table[1:]))
