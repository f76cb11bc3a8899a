"""What a live view shows, kept from the events that pass: sums by second, and the last outputs.

One LiveTap sees every event of a server or a sweep. It keeps plain sums of a bounded past and
derives the figures when somebody looks. Accept length and survival are defined as in
``metrics/acceptance.py``: pooled over verify steps, before trimming.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench.backends.base import Event
from specbench.config import SpecConfig
from specbench.server.shown import Flight, Shown
from specbench.trace import Chunk, StepTrace

NS_PER_S = 1_000_000_000
WINDOW_S = 600
RATE_S = 5  # tokens/s is a mean over this many whole seconds
_FORWARDS_KEPT = 256


@dataclass(slots=True, kw_only=True)
class Second:
    """Sums of one second. ``at`` counts seconds from the tap's start, ``epoch`` switches of point.

    ``accepted_by[j]`` and ``depth_by[j]`` count steps that accepted j drafts or drafted to depth
    j. Wall times are added once per forward, however many requests took part (semantics.md 7).
    """

    at: int
    point_id: str
    epoch: int = 0
    tokens: int = 0
    verify_steps: int = 0
    accepted: int = 0
    accepted_by: Counter[int] = field(default_factory=Counter)
    depth_by: Counter[int] = field(default_factory=Counter)
    forwards: int = 0
    draft_ns: int = 0
    extend_ns: int = 0
    verify_ns: int = 0
    other_ns: int = 0

    @property
    def accept_length(self) -> float | None:
        """1 + accepted / verify steps; None without a step."""
        return 1 + self.accepted / self.verify_steps if self.verify_steps else None

    @property
    def step_ms(self) -> float | None:
        """Mean wall time of a forward; None when none was timed."""
        whole = self.draft_ns + self.extend_ns + self.verify_ns + self.other_ns
        return whole / self.forwards / 1e6 if self.forwards else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Derived from some seconds; what was not seen is None or empty.

    ``survival[i - 1]`` is the share of verify steps that accepted at least i drafts,
    ``drafted[i - 1]`` of those that drafted at least to depth i. ``parts_ms`` are means per
    forward of draft, extend, verify and other.
    """

    verify_steps: int
    accept_length: float | None
    survival: tuple[float, ...]
    drafted: tuple[float, ...]
    forwards: int
    parts_ms: Mapping[str, float] | None


def figures(seconds: Iterable[Second]) -> Figures:
    """Pool ``seconds``.

    >>> one = Second(at=0, point_id="k2", verify_steps=2, accepted=1, forwards=1, verify_ns=3000000)
    >>> one.accepted_by.update([1, 0]); one.depth_by.update([2, 2])
    >>> seen = figures([one])
    >>> seen.accept_length, seen.survival, seen.drafted, seen.parts_ms["verify"]
    (1.5, (0.5, 0.0), (1.0, 1.0), 3.0)
    """
    kept = list(seconds)
    steps, forwards = sum(s.verify_steps for s in kept), sum(s.forwards for s in kept)
    accepted_by, depth_by = Counter[int](), Counter[int]()
    for second in kept:
        for depth, steps_there in second.depth_by.items():
            depth_by[depth] += steps_there
        for accepted, steps_there in second.accepted_by.items():
            accepted_by[accepted] += steps_there
    deepest = max(depth_by, default=0)
    parts = None
    if forwards:
        parts = {
            part: sum(getattr(s, f"{part}_ns") for s in kept) / forwards / 1e6
            for part in ("draft", "extend", "verify", "other")
        }
    return Figures(
        verify_steps=steps,
        accept_length=1 + sum(s.accepted for s in kept) / steps if steps else None,
        survival=_reached(accepted_by, deepest, steps),
        drafted=_reached(depth_by, deepest, steps),
        forwards=forwards,
        parts_ms=parts,
    )


def _reached(counts: Counter[int], deepest: int, steps: int) -> tuple[float, ...]:
    """The share of ``steps`` whose count is at least i, for i = 1 ... ``deepest``."""
    return tuple(
        sum(n for value, n in counts.items() if value >= i) / steps for i in range(1, deepest + 1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How far a reader of ``LiveTap.state`` has got: a second, and pieces of each output."""

    second: int
    outputs: Mapping[int, int]


class LiveTap:
    """Sees every event; a few microseconds a step, memory bounded by time and ``most_outputs``.

    Args:
        spec: the point that runs; ``switch`` tells of another.
        batch_size: how many requests run together.
        most_outputs: how many outputs are kept with their text; 0 keeps none.
    """

    def __init__(self, spec: SpecConfig, batch_size: int, *, most_outputs: int = 8) -> None:
        self._start_ns = time.perf_counter_ns()
        self._seconds: deque[Second] = deque(maxlen=WINDOW_S)
        self._shown = Shown(most_outputs)
        self._forwards: set[int] = set()
        self._forward_order: deque[int] = deque()
        self._spec, self._batch_size, self._epoch = spec, batch_size, 0
        self.running = 0
        self.queued = 0
        self.tokens = 0
        self.ended: Counter[str] = Counter()
        self.changed_ns = self._start_ns

    def switch(self, spec: SpecConfig, batch_size: int) -> None:
        """Another point runs from now on; its figures start afresh."""
        self._spec, self._batch_size = spec, batch_size
        self._epoch += 1
        self._forwards.clear()
        self._forward_order.clear()

    def begin(self, request_id: str) -> Flight:
        """A request was taken; it is queued until its first delivery."""
        self.queued += 1
        flight = Flight(request_id=request_id, started_ns=self._touch())
        flight.output = self._shown.begin(flight)
        return flight

    def see(self, flight: Flight, event: Event) -> None:
        """File one event of a request."""
        now = self._touch()
        if isinstance(event, StepTrace):
            self._step(self._second(now), event)
            flight.verify_steps += 1
            flight.accepted += event.accepted
            if flight.output is not None:
                flight.output.step(event)
        elif isinstance(event, Chunk):
            tokens = event.tokens or 0
            self.tokens += tokens
            self._second(now).tokens += tokens
            flight.tokens += tokens
            if flight.first_ns is None and (event.text or tokens):
                flight.first_ns = now
                self.queued -= 1
                self.running += 1
            if flight.output is not None:
                flight.output.deliver(event)
        else:
            flight.outcome = event.finish.value

    def end(self, flight: Flight, outcome: str) -> None:
        """The request is over, with this word for it."""
        self._touch()
        flight.outcome = outcome
        self.ended[outcome] += 1
        if flight.first_ns is None:
            self.queued -= 1
        else:
            self.running -= 1
        if flight.output is not None:
            flight.output.end()

    def figures(self) -> Figures:
        """Since the last switch, and at most over the window."""
        return figures(s for s in self._recent() if s.epoch == self._epoch)

    def tokens_per_s(self) -> float:
        """Mean over the last whole seconds; 0 while nothing comes."""
        now = self._at()
        seconds = min(RATE_S, now)
        recent = sum(s.tokens for s in self._seconds if now - seconds <= s.at < now)
        return recent / seconds if seconds else 0.0

    def state(self, seen: Seen | None = None) -> tuple[dict[str, Any], Seen]:
        """Everything a view draws, as plain data: whole, or what came after ``seen``.

        A reader replaces what it has from each ``at`` and each ``from`` on, so a part that comes
        twice does no harm.
        """
        spec, pooled = self._spec, self.figures()
        recent = self._recent()
        outputs, counts = self._shown.state({} if seen is None else seen.outputs)
        state = {
            "now": (time.perf_counter_ns() - self._start_ns) / NS_PER_S,
            "point": {
                "id": spec.point_id,
                "num_steps": spec.num_steps,
                "topk": spec.topk,
                "num_draft_tokens": spec.num_draft_tokens,
                "batch_size": self._batch_size,
            },
            "running": self.running,
            "queued": self.queued,
            "tokens": self.tokens,
            "tokens_per_s": self.tokens_per_s(),
            "ended": dict(self.ended),
            "figures": {name: getattr(pooled, name) for name in Figures.__dataclass_fields__},
            "seconds": [_row(s) for s in recent if seen is None or s.at >= seen.second],
            "outputs": outputs,
        }
        return state, Seen(second=recent[-1].at if recent else 0, outputs=counts)

    def _step(self, second: Second, step: StepTrace) -> None:
        second.verify_steps += 1
        second.accepted += step.accepted
        second.accepted_by[step.accepted] += 1
        second.depth_by[step.depth] += 1
        if step.batch_step in self._forwards or step.wall_ns == 0:
            return
        self._forwards.add(step.batch_step)
        self._forward_order.append(step.batch_step)
        if len(self._forward_order) > _FORWARDS_KEPT:
            self._forwards.discard(self._forward_order.popleft())
        second.forwards += 1
        second.draft_ns += step.draft_ns
        second.extend_ns += step.extend_ns
        second.verify_ns += step.verify_ns
        second.other_ns += step.other_ns

    def _second(self, now_ns: int) -> Second:
        """The sums of the second that ``now_ns`` lies in."""
        at = (now_ns - self._start_ns) // NS_PER_S
        last = self._seconds[-1] if self._seconds else None
        if last is None or last.at != at or last.epoch != self._epoch:
            last = Second(at=at, point_id=self._spec.point_id, epoch=self._epoch)
            self._seconds.append(last)
        return last

    def _recent(self) -> list[Second]:
        oldest = self._at() - WINDOW_S
        return [s for s in self._seconds if s.at >= oldest]

    def _at(self) -> int:
        return (time.perf_counter_ns() - self._start_ns) // NS_PER_S

    def _touch(self) -> int:
        self.changed_ns = time.perf_counter_ns()
        return self.changed_ns


def _row(second: Second) -> dict[str, Any]:
    """One second for a chart."""
    return {
        "at": second.at,
        "point": second.point_id,
        "accept_length": second.accept_length,
        "tokens": second.tokens,
        "step_ms": second.step_ms,
    }
