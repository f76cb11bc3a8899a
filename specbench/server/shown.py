"""The last outputs, piece by piece, with what each verify step drafted, accepted and emitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench.trace import Chunk, StepTrace

MOST_PIECES = 160


@dataclass(slots=True, kw_only=True)
class Flight:
    """One request as seen so far; its log line and its place in the view are made of it.

    ``outcome`` is None while it runs; ``output`` is None where its text is not kept.
    """

    request_id: str
    started_ns: int
    first_ns: int | None = None
    tokens: int = 0
    verify_steps: int = 0
    accepted: int = 0
    outcome: str | None = None
    output: Output | None = None


class Output:
    """One request's output. A piece is one delivery of text with the steps that it came from.

    Events do not say which characters belong to which token, so a piece is the finest grain: its
    steps say how many of its tokens were accepted drafts and whether the last is the bonus. Text
    may be delivered after the step that made it (half a character, a possible stop string);
    such steps are held until the next delivery.
    """

    def __init__(self, number: int, flight: Flight) -> None:
        self.number = number
        self.flight = flight
        self.count = 0
        self._pieces: deque[dict[str, Any]] = deque(maxlen=MOST_PIECES)
        self._held: list[dict[str, int]] = []

    def step(self, step: StepTrace) -> None:
        """A verify step, whose text comes with the next delivery."""
        self._held.append(
            {
                "accepted": step.accepted,
                "emitted": step.emitted,
                "depth": step.depth,
                "drafted": step.drafted,
            }
        )

    def deliver(self, chunk: Chunk) -> None:
        """A delivery: a new piece."""
        self._add(chunk.text, chunk.tokens)

    def end(self) -> None:
        """No more comes; steps that never got a text become a piece without one."""
        if self._held:
            self._add("", None)

    def _add(self, text: str, tokens: int | None) -> None:
        self._pieces.append({"text": text, "tokens": tokens, "steps": self._held})
        self._held = []
        self.count += 1

    def _state(self) -> str:
        if self.flight.outcome is not None:
            return self.flight.outcome
        return "queued" if self.flight.first_ns is None else "running"

    def after(self, count: int) -> dict[str, Any]:
        """Plain data: the pieces from number ``count`` on; ``first`` is the oldest one kept."""
        first = self.count - len(self._pieces)
        start = max(count, first)
        return {
            "number": self.number,
            "id": self.flight.request_id,
            "state": self._state(),
            "tokens": self.flight.tokens,
            "verify_steps": self.flight.verify_steps,
            "accepted": self.flight.accepted,
            "first": first,
            "from": start,
            "pieces": [piece for i, piece in enumerate(self._pieces, first) if i >= start],
        }


class Shown:
    """At most ``most`` outputs; a new one takes the place of the one that began first and ended.

    While all of them run, further requests are not shown: what is being read stays in place.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._outputs: list[Output] = []
        self._begun = 0

    def begin(self, flight: Flight) -> Output | None:
        """A place for a new request; None when there is none."""
        if len(self._outputs) >= self._most:
            ended = next((o for o in self._outputs if o.flight.outcome), None)
            if ended is None:
                return None
            self._outputs.remove(ended)
        self._begun += 1
        output = Output(self._begun, flight)
        self._outputs.append(output)
        return output

    def state(self, seen: Mapping[int, int]) -> tuple[list[dict[str, Any]], dict[int, int]]:
        """All outputs, oldest first, with the pieces beyond ``seen``; and how many each has now."""
        rows = [output.after(seen.get(output.number, 0)) for output in self._outputs]
        return rows, {output.number: output.count for output in self._outputs}
