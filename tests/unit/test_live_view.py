"""The terminal view: the page's figures as text, on a terminal of any width."""

from __future__ import annotations

import asyncio
import dataclasses
import io

import pytest
from rich.console import Console

from specbench.config import LoadConfig
from specbench.live_view import LiveView
from specbench.request import Request, SamplingParams
from specbench.run import run_block
from specbench.sweep import BlockObserver, Job, plan_jobs
from specbench.trace import Chunk
from tests.fakes import FakeBackend
from tests.unit.test_sweep import SPEC, workload_of


def job_of(point_id: str) -> Job:
    jobs = plan_jobs(SPEC, SPEC.grid().points, [workload_of()])
    return next(job for job in jobs if job.point.point_id == point_id)


def watched(view: LiveView, job: Job) -> None:
    """Run a block of ``job`` on the scripted backend under the view's eyes."""
    view.started(10, 4)
    arm, _ = asyncio.run(
        run_block(
            FakeBackend(),
            spec=job.point.spec,
            workload="w",
            temperature=0.0,
            batch_size=1,
            block=0,
            requests=job.requests,
            load=LoadConfig(),
            warmup=1,
            watches=[view.began(job)],
        )
    )
    view.saved(job, arm)


def shown(view: LiveView, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(view.render(width))
    return captured.get()


def new_view(width: int = 100) -> LiveView:
    return LiveView(Console(file=io.StringIO(), width=width, force_terminal=True), interval_s=0.0)


def test_brackets_in_a_workload_are_shown_as_they_are() -> None:
    view, job = new_view(), job_of("k3")
    odd = dataclasses.replace(job.workload, name="set[v2]")
    view.began(dataclasses.replace(job, workload=odd))
    assert "set[v2]" in shown(view)


def test_a_block_is_watched_and_drawn() -> None:
    view = new_view()
    assert isinstance(view, BlockObserver)
    with view:
        watched(view, job_of("k3"))
    text = shown(view)
    assert "5/10 blocks" in text
    assert "k3" in text
    assert "accept length" in text
    assert "verify" in text
    assert "ms" in text
    assert "%" in text
    assert " é" in text
    assert "■■■◆" in text
    assert "◆✗✗✗" in text


def test_the_baseline_has_no_positions() -> None:
    view = new_view()
    watched(view, job_of("base"))
    assert "nothing drafted" in shown(view)


def test_before_the_first_event_nothing_is_claimed() -> None:
    text = shown(new_view())
    assert "loading" in text
    assert "no request yet" in text
    assert "not timed here" in text
    assert "0.00" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    view = new_view(width)
    watched(view, job_of("k3"))
    assert max(len(line) for line in shown(view, width).splitlines()) <= width


def test_output_cannot_command_the_terminal() -> None:
    view = new_view()
    view.began(job_of("k3"))
    request = Request(request_id="r", prompt="p", sampling=SamplingParams(max_tokens=4))
    view.event(request, Chunk(at_ns=0, tokens=1, text="a\x1b[2J\nb[bold]c"))
    text = shown(view)
    assert "\x1b" not in text
    assert "a�[2J↵b[bold]c" in text
