"""report.html in a real browser: it draws, filters, picks and shows outputs without a network."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from specbench.metrics.summary import SummaryInput
from specbench.report.bundle import build
from specbench.trace import Rejected, RequestTrace
from tests.chrome import Tab, chromium
from tests.programs import need
from tests.unit.report.sample_runs import PROVENANCE, sample_input

ROWS = "document.querySelectorAll('#grid tbody tr').length"


@pytest.fixture(scope="module")
def given() -> SummaryInput:
    made = sample_input(requests=20)
    runs = tuple(
        dataclasses.replace(run, requests=tuple(with_rejected(trace) for trace in run.requests))
        for run in made.runs
    )
    return dataclasses.replace(made, runs=runs)


def with_rejected(trace: RequestTrace) -> RequestTrace:
    told = tuple(Rejected(ids=(i,), text=f" no{i}") for i in range(len(trace.steps)))
    return dataclasses.replace(trace, rejected=told)


@pytest.fixture(scope="module")
def page(given: SummaryInput, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    content = build(given, PROVENANCE)["report.html"]
    assert isinstance(content, str)
    path.write_text(content, encoding="utf-8")
    return path


def browse(page: Path, use: Callable[[Tab], Awaitable[None]]) -> None:
    program = need("chromium")

    async def body() -> None:
        async with chromium(program) as tab:
            await tab.open(page.as_uri())
            await use(tab)
            assert tab.problems == []

    asyncio.run(body())


async def choose(tab: Tab, name: str, value: str) -> None:
    box = f"document.querySelector('#filters select[name={name}]')"
    await tab.value(f"{box}.value = '{value}', {box}.dispatchEvent(new Event('change'))")


def test_the_table_filters_sorts_and_draws_what_is_picked(page: Path, given: SummaryInput) -> None:
    points = len(given.points)

    async def use(tab: Tab) -> None:
        assert await tab.value("document.getElementById('explore').hidden") is False
        assert await tab.value(ROWS) == 2 * points  # two batch sizes, category all
        await choose(tab, "batch", "4")
        assert await tab.value(ROWS) == points
        await choose(tab, "category", "")
        assert await tab.value(ROWS) == 6 * points  # all and five categories
        await choose(tab, "category", "code")
        assert await tab.value(ROWS) == points

        lines = "document.querySelectorAll('#survival polyline').length"
        before = await tab.value(lines)
        await tab.value("document.querySelector('#grid tbody tr:nth-child(3)').click()")
        assert await tab.value(lines) == before + 1
        await tab.value("document.querySelector('#grid tbody tr:nth-child(3)').click()")
        assert await tab.value(lines) == before
        assert await tab.value("document.querySelectorAll('#split rect').length") >= 8

        await choose(tab, "category", "all")
        names = "[...document.querySelectorAll('#grid th button')]"
        column = f"{names}.findIndex(b => b.textContent === 'accept length')"
        await tab.value(f"document.querySelectorAll('#grid th button')[{column}].click()")
        shown = await tab.value(
            "[...document.querySelectorAll('#grid tbody tr')]"
            f".map(r => parseFloat(r.cells[{column}].textContent)).filter(x => !isNaN(x))"
        )
        assert shown == sorted(shown, reverse=True)
        assert len(set(shown)) > 3

    browse(page, use)


def test_outputs_are_marked_step_by_step(page: Path) -> None:
    async def use(tab: Tab) -> None:
        first = await tab.value("document.getElementById('output').textContent")
        marks = "document.querySelectorAll('#output .mark.{}').length"
        steps = await tab.value("document.querySelectorAll('#output .step').length")
        assert await tab.value(marks.format("b")) == steps - 1
        assert await tab.value(marks.format("p")) == 1
        accepted, rejected = [await tab.value(marks.format(kind)) for kind in "ar"]
        assert accepted > 0
        depth = 5 if "· k5 ·" in first else int(first.split("· k")[1][0])
        assert accepted + rejected == depth * (steps - 1)
        gone = "[...document.querySelectorAll('#output .step s')].map(s => s.textContent)"
        assert await tab.value(gone) == [f" no{i}" for i in range(steps - 1)]
        look = "getComputedStyle(document.querySelector('#output .step {}')).{}"
        assert await tab.value(look.format("s", "textDecorationLine")) == "line-through"
        for name in ("color", "backgroundColor"):
            colours = [await tab.value(look.format(tag, name)) for tag in ("s", "b")]
            assert colours[0] != colours[1]
        box = "document.getElementById('which')"
        await tab.value(f"{box}.value = '4', {box}.dispatchEvent(new Event('change'))")
        assert await tab.value("document.getElementById('output').textContent") != first

    browse(page, use)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_and_paper_are_apart_in_both_schemes(page: Path, scheme: str) -> None:
    async def use(tab: Tab) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await tab.call("Emulation.setEmulatedMedia", features=[feature])
        style = "getComputedStyle(document.body)"
        ink, paper = [
            await tab.value(f"{style}.{name}.match(/\\d+/g).map(Number)[0]")
            for name in ("color", "backgroundColor")
        ]
        assert (paper > 200 and ink < 60) if scheme == "light" else (paper < 60 and ink > 200)

    browse(page, use)


def test_a_laptop_needs_no_sideways_scrolling(page: Path) -> None:
    async def use(tab: Tab) -> None:
        size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        await tab.call("Emulation.setDeviceMetricsOverride", **size)
        assert await tab.value("document.documentElement.scrollWidth <= window.innerWidth")

    browse(page, use)
