"""Pieces of outputs: what is kept, what is dropped, and who gets a place."""

from __future__ import annotations

from specbench.config import SpecConfig
from specbench.request import Request, SamplingParams
from specbench.server.shown import MOST_PIECES, Flight, Output, Shown
from specbench.trace import Chunk
from tests.fakes import fake_steps

STEPS = fake_steps(
    Request(request_id="r", prompt="p", sampling=SamplingParams(max_tokens=11)), SpecConfig.chain(3)
)


def new_flight(name: str = "r") -> Flight:
    return Flight(request_id=name, started_ns=0)


def chunk(text: str) -> Chunk:
    return Chunk(at_ns=0, tokens=1, text=text)


def test_a_step_whose_text_is_withheld_belongs_to_the_next_delivery() -> None:
    output = Output(1, new_flight())
    output.step(STEPS[0])
    output.step(STEPS[1])
    output.deliver(chunk("late"))
    [piece] = output.after(0)["pieces"]
    assert [step["accepted"] for step in piece["steps"]] == [3, 0]


def test_steps_without_a_text_are_shown_at_the_end() -> None:
    output = Output(1, new_flight())
    output.step(STEPS[0])
    assert output.after(0)["pieces"] == []
    assert output.after(0)["state"] == "queued"
    output.end()
    [piece] = output.after(0)["pieces"]
    assert (piece["text"], piece["tokens"], len(piece["steps"])) == ("", None, 1)


def test_the_oldest_pieces_go_and_the_numbers_stay() -> None:
    output = Output(1, new_flight())
    for number in range(MOST_PIECES + 10):
        output.deliver(chunk(str(number)))
    row = output.after(0)
    assert (row["first"], row["from"]) == (10, 10)
    assert row["pieces"][0]["text"] == "10"
    assert output.after(MOST_PIECES + 9)["pieces"][0]["text"] == str(MOST_PIECES + 9)


def test_a_new_output_takes_the_place_of_one_that_ended() -> None:
    shown = Shown(2)
    first, second = new_flight("a"), new_flight("b")
    assert shown.begin(first) is not None
    assert shown.begin(second) is not None
    assert shown.begin(new_flight("c")) is None  # both still run
    second.outcome = "stop"
    assert shown.begin(new_flight("d")) is not None
    rows, counts = shown.state({})
    assert [row["id"] for row in rows] == ["a", "d"]
    assert list(counts) == [1, 3]


def test_nothing_is_kept_where_no_output_is_wanted() -> None:
    shown = Shown(0)
    assert shown.begin(new_flight()) is None
    assert shown.state({}) == ([], {})
