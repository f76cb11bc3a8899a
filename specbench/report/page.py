"""What the interactive part of ``report.html`` draws from: plain data, embedded in the page."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from specbench.estimate import Severity
from specbench.metrics.figures import ArmResult, Figures
from specbench.metrics.rows import validity
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.outputs import ShownOutput


def page_data(summary: Summary, outputs: Sequence[ShownOutput]) -> dict[str, Any]:
    """Rows of the table with their curves, and the outputs: JSON-ready; None is not measured."""
    best = {one.arm.key for one in summary.bests if one.arm is not None}
    return {
        "rows": [
            _row(arm, seen, best=arm.key in best)
            for arm in summary.arms
            for seen in (arm.total, *arm.categories)
        ],
        "outputs": [dataclasses.asdict(one) for one in outputs],
        "invalid": sorted(
            {
                caveat.code
                for arm in summary.arms
                for caveat in arm.caveats
                if caveat.severity is Severity.INVALID
            }
        ),
    }


def _row(arm: ArmResult, seen: Figures, *, best: bool) -> dict[str, Any]:
    cell, parts, split = arm.key.cell, seen.decomposition, seen.split
    return {
        "point": wording.named(arm),
        "baseline": arm.spec.is_baseline,
        "best": best,
        "workload": cell.workload,
        "temperature": cell.temperature,
        "batch": cell.batch_size,
        "category": seen.category,
        "requests": seen.requests,
        "accept": None if arm.spec.is_baseline else _bounds(seen.accept_length),
        "tok_s": _bounds(seen.output_tok_s),
        "speedup": _bounds(seen.speedup),
        "break_even": parts.break_even_accept_length if parts else None,
        "emitted": parts.emitted_length if parts else None,
        "plain_ms": parts.plain_step_ms if parts else None,
        "split": None
        if split is None
        else [split.draft_ms, split.extend_ms, split.verify_ms, split.other_ms],
        "lossless": arm.lossless.verdict.value if arm.lossless else None,
        "validity": validity(arm.caveats).replace(";", ", "),
        "survival": list(seen.survival or ()),
    }


def _bounds(value: Any) -> list[float | None] | None:
    return None if value is None else [value.value, value.low, value.high]


@functools.cache
def asset(name: str) -> str:
    """A packaged part of the page."""
    return (files("specbench.report") / "assets" / name).read_text(encoding="utf-8")


def head(title: str) -> str:
    """The head of the page: its style, and a policy that lets nothing else in or out."""
    style = asset("steps.css") + asset("report.css")
    script = _hash(asset("report.js"))
    policy = (
        f"default-src 'none'; script-src '{script}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>"
    )


def explorer(data: Mapping[str, Any]) -> str:
    """The interactive part: its places, the data and the script."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return (
        f"{asset('explorer.html')}\n"
        f'<script type="application/json" id="data">{safe}</script>\n'
        f"<script>{asset('report.js')}</script>"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
