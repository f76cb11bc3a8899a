"""The last screen: headline, decomposition, one histogram line, a compact table, caveats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specbench.estimate import Severity
from specbench.metrics.best import Best, Outcome
from specbench.metrics.figures import ArmResult
from specbench.metrics.rows import validity
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.notes import told

MOST_ROWS = 16
COLOURS = {Outcome.FASTER: "bold green", Outcome.SLOWER: "bold red"}


def show(out: Path, summary: Summary, console: Console) -> None:
    """The last screen: the summary, then the paths of what was written to ``out``."""
    render(summary, console)
    names = sorted(p.name for p in out.iterdir() if p.suffix in (".csv", ".md", ".html", ".png"))
    console.print(f"\nWrote {out}/: {', '.join(names)}", markup=False, soft_wrap=True)


def render(summary: Summary, console: Console) -> None:
    """Print the summary to ``console``; nothing else is printed at the end of a run."""
    cells = [best.cell for best in summary.bests]
    for best in summary.bests:
        text = wording.verdict(best, cells)
        console.print(Text(text, style=COLOURS.get(best.outcome, "bold yellow")))
    if missing := wording.unfinished(summary):
        console.print(Text(missing, style="bold yellow"))
    best = summary.headline
    if best.arm is not None:
        for line in (
            wording.decomposition(best.arm),
            wording.histogram(best.arm.total.histogram),
            wording.tied(best),
        ):
            if line:
                console.print(Text(line))
    console.print(Text(wording.evidence(summary), style="dim"))
    for best in summary.bests:
        console.print(_table(summary, best))
    _caveats(summary, console)


def _table(summary: Summary, best: Best) -> Table:
    cell = best.cell
    table = Table(
        title=Text(wording.cell(cell), style="table.title"),
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    table.add_column("point")
    for name in ("accept\nlength", "tok/s", "speedup", "break-\neven", "step ms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lossless")
    table.add_column("validity", overflow="fold")
    shown, hidden = _shown(summary.of_cell(cell))
    if hidden:
        table.caption = f"{hidden} slower points are in report.md"
        table.caption_justify = "left"
    for arm in shown:
        style = "bold" if best.arm is not None and arm.key == best.arm.key else ""
        table.add_row(*_row(arm), style=style)
    return table


def _shown(arms: Sequence[ArmResult]) -> tuple[list[ArmResult], int]:
    """A long grid's baseline and fastest points in grid order, and how many are left out."""
    if len(arms) <= MOST_ROWS:
        return list(arms), 0
    fastest = sorted(arms, key=lambda arm: arm.total.speedup.value if arm.total.speedup else 0.0)
    kept = {arm.key for arm in fastest[-(MOST_ROWS - 1) :]}
    shown = [arm for arm in arms if arm.spec.is_baseline or arm.key in kept]
    return shown, len(arms) - len(shown)


def _row(arm: ArmResult) -> tuple[str, ...]:
    total, parts = arm.total, arm.total.decomposition
    length = total.accept_length
    return (
        wording.named(arm),
        wording.number(None if arm.spec.is_baseline or length is None else length.value),
        wording.number(total.output_tok_s.value if total.output_tok_s else None, 1),
        wording.estimate(total.speedup, unit="x"),
        wording.number(parts.break_even_accept_length if parts else None),
        wording.number(total.split.step_ms if total.split else None),
        arm.lossless.verdict.value if arm.lossless else wording.MISSING,
        validity(arm.caveats).replace(";", " "),
    )


def _caveats(summary: Summary, console: Console) -> None:
    """Each code once, as in the report, which adds what to do about it."""
    styles = {Severity.INVALID: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
    for one in told(summary, most=2):
        console.print(Text(f"{one.code} ({one.where}): {one.text}", style=styles[one.severity]))
