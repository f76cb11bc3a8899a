import dataclasses
import io

from rich.console import Console

from specbench.estimate import Caveat, Severity
from specbench.metrics.summary import Summary
from specbench.report.terminal import MOST_ROWS, render
from tests.unit.report.golden import check_golden


def screen(summary: Summary, width: int = 100) -> str:
    out = io.StringIO()
    render(summary, Console(file=out, width=width, color_system=None))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_last_screen(summary: Summary) -> None:
    check_golden("terminal.txt", screen(summary))


def test_a_caveat_is_said_once(summary: Summary) -> None:
    note = Caveat(code="clocks", severity=Severity.WARNING, text="clocks are not locked")
    arms = tuple(dataclasses.replace(arm, caveats=(note,)) for arm in summary.arms)
    text = screen(dataclasses.replace(summary, arms=arms))
    assert text.count("clocks are not locked") == 1


def test_long_grids_keep_baseline_and_fastest(summary: Summary) -> None:
    cell = summary.headline.cell
    arms = summary.of_cell(cell)
    more = tuple(
        dataclasses.replace(
            arm, key=dataclasses.replace(arm.key, point_id=f"{arm.key.point_id}'{i}")
        )
        for i in range(2)
        for arm in arms[1:]
    )
    long = dataclasses.replace(summary, arms=(*arms, *more), bests=summary.bests[:1])
    text = screen(long)
    assert f"{len(arms) + len(more) - MOST_ROWS} slower points are in report.md" in text
    assert text.count("5/4/16 ") == 3
    assert "0/1/1" in text


def test_narrow_screens_keep_the_numbers(summary: Summary) -> None:
    assert "1.96x [1.74, 2.22]" in screen(summary, width=80)
