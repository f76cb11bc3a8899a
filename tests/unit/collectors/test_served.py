"""Requests of a server are counted as a load generator's are, however they end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from specbench.backends.base import Event, Finished
from specbench.collectors.arm import ArmRecord
from specbench.collectors.points import Cell
from specbench.collectors.served import counted
from specbench.config import SpecConfig
from specbench.errors import BackendError
from specbench.request import Request, SamplingParams
from tests.fakes import FakeBackend, fake_steps

ASKED = Request(request_id="r", prompt="a prompt", sampling=SamplingParams(max_tokens=9))


def arm() -> ArmRecord:
    return ArmRecord(Cell(spec=SpecConfig.chain(3), batch_size=1), "k3.bs1")


def line(record: ArmRecord, family: str, of: str = "") -> str:
    """The value of one line."""
    (found,) = (
        text.rsplit(" ", 1)[1]
        for text in record.lines()[f"specbench_{family}"].decode().splitlines()
        if of in text
    )
    return found


def test_events_pass_unchanged_and_are_counted() -> None:
    record, backend = arm(), FakeBackend()

    async def run() -> list[Event]:
        return [event async for event in counted(backend.stream(ASKED), ASKED, record)]

    events = asyncio.run(run())
    steps = fake_steps(ASKED, SpecConfig.chain(3))
    assert isinstance(events[-1], Finished)
    assert [event for event in events if event in steps] == list(steps)
    assert line(record, "verify_steps_total") == str(len(steps))
    assert line(record, "output_tokens_total") == "9"
    assert line(record, "prompt_tokens_total") == "8"
    assert line(record, "requests_total", "length") == "1"


def test_a_failed_request_is_an_error_and_still_fails() -> None:
    record = arm()
    backend = FakeBackend(fails={"r": BackendError("No slot is free.")})

    async def run() -> None:
        async for _ in counted(backend.stream(ASKED), ASKED, record):
            pass

    with pytest.raises(BackendError, match="No slot"):
        asyncio.run(run())
    assert line(record, "requests_total", "error") == "1"
    assert line(record, "output_tokens_total") == "1"


def test_a_client_that_goes_away_cancels_in_the_backend() -> None:
    record, backend = arm(), FakeBackend()

    async def run() -> None:
        async with aclosing(counted(backend.stream(ASKED), ASKED, record)) as events:
            await anext(events)

    asyncio.run(run())
    assert backend.closed_early == ["r"]
    assert line(record, "requests_total", "cancelled") == "1"
