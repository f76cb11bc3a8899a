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


def test_every_fact_of_a_code_is_said_and_where(summary: Summary) -> None:
    """As in the report: nothing that it needs is lost behind the first sentence."""
    texts = ("the cache was not checked", "no one knows the dtype")
    facts = tuple(
        Caveat(code="server_settings", severity=Severity.WARNING, text=text) for text in texts
    )
    some = tuple(dataclasses.replace(arm, caveats=facts) for arm in summary.arms[1:3])
    rest = tuple(dataclasses.replace(arm, caveats=()) for arm in summary.arms[3:])
    plain = dataclasses.replace(summary.arms[0], caveats=())
    text = screen(dataclasses.replace(summary, arms=(plain, *some, *rest)), width=400)
    assert (
        "server_settings (1/1/2 at batch size 1, 2/1/3 at batch size 1; on 1/1/2 at batch size 1): "
        "the cache was not checked; no one knows the dtype" in text
    )


def test_brackets_in_a_workload_are_shown_as_they_are(summary: Summary) -> None:
    cell = dataclasses.replace(summary.headline.cell, workload="set[v2]")
    arms = tuple(
        dataclasses.replace(arm, key=dataclasses.replace(arm.key, cell=cell))
        for arm in summary.of_cell(summary.headline.cell)
    )
    bests = (dataclasses.replace(summary.headline, cell=cell),)
    assert "set[v2], temperature 0" in screen(dataclasses.replace(summary, arms=arms, bests=bests))


def test_an_unfinished_run_says_so(summary: Summary) -> None:
    text = screen(dataclasses.replace(summary, unfinished=(31, 40)))
    assert "Unfinished: 31 of 40 blocks were measured" in text
    assert "Unfinished" not in screen(summary)


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
