"""A scripted backend: deterministic tokens and steps, no model, no clock but for stamps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from specbench.backends.base import BackendFacts, Event, Finished
from specbench.config import SpecConfig
from specbench.errors import BackendError, ConfigError, SpecbenchError
from specbench.request import Request
from specbench.trace import Chunk, Evidence, Finish, StepTrace, Usage

ACCEPTED = (3, 0, 2, 1)


def fake_ids(request: Request) -> tuple[int, ...]:
    """The output token ids of ``request``: a function of its sampling parameters only."""
    first = 100 + request.sampling.seed
    return tuple(range(first, first + request.sampling.max_tokens))


def fake_text(ids: Sequence[int]) -> str:
    """The text of ``ids``, one word each, with letters outside ASCII."""
    return "".join(f" é{i}" for i in ids)


@dataclass
class FakeBackend:
    """Answers every request at once from a script; see ``fake_ids`` and ``fake_text``.

    The token from prefill is the first chunk; step i then accepts ``accepted[i % len]`` drafts,
    cut to the depth of the point that is configured. ``fails`` maps requests to an error that is
    raised after the first chunk; those in ``hangs`` deliver one chunk, put their name into
    ``hanging`` and wait for ever; ``silent`` ones end without Finished. A request is named there
    by its id or, since a server makes up ids, by its prompt. ``delay_s`` is slept before each
    chunk (0 yields to the loop). What happened is counted: ``sent`` requests in order, names
    ``closed_early`` because they were cancelled, ``points`` that were configured.
    """

    accepted: tuple[int, ...] = ACCEPTED
    delay_s: float = 0.0
    spec: SpecConfig = field(default_factory=lambda: SpecConfig.chain(3))
    fails: Mapping[str, SpecbenchError] = field(default_factory=dict)
    hangs: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    max_len: int = 1024
    evidence: Evidence = Evidence.STEPS
    in_flight: int = 0
    most_in_flight: int = 0
    opened: int = 0
    closed: int = 0
    sent: list[Request] = field(default_factory=list)
    hanging: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    closed_early: list[str] = field(default_factory=list)
    points: list[tuple[SpecConfig, int]] = field(default_factory=list)

    async def open(self) -> BackendFacts:
        self.opened += 1
        return BackendFacts(
            backend="fake",
            target="fake-target",
            draft="fake-draft",
            device={"device": "none"},
            max_len=self.max_len,
        )

    async def configure(self, spec: SpecConfig, batch_size: int) -> None:
        if self.in_flight:
            raise BackendError("Requests are in flight.", todo="Wait until they have ended.")
        if batch_size > 64:
            raise ConfigError(f"batch_size={batch_size}.", expected="At most 64.")
        self.spec = spec
        self.points.append((spec, batch_size))

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.sent.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        ended = False
        try:
            async for event in self._script(request):
                yield event
            ended = True
        finally:
            self.in_flight -= 1
            name = self._name(request)
            if not ended and name not in self.fails:
                self.closed_early.append(name)

    def _name(self, request: Request) -> str:
        """What ``fails``, ``hangs`` and ``silent`` know the request by: its prompt or its id."""
        special = {*self.fails, *self.hangs, *self.silent}
        return request.prompt if request.prompt in special else request.request_id

    async def _script(self, request: Request) -> AsyncGenerator[Event, None]:
        ids = fake_ids(request)
        if request.sampling.max_tokens > self.max_len:
            raise ConfigError(f"max_tokens={request.sampling.max_tokens} does not fit.")
        await asyncio.sleep(self.delay_s)
        yield Chunk(at_ns=time.perf_counter_ns(), tokens=1, text=fake_text(ids[:1]))
        name = self._name(request)
        if name in self.fails:
            raise self.fails[name]
        if name in self.hangs:
            self.hanging.put_nowait(name)
            await asyncio.Event().wait()
        done = 1
        steps = fake_steps(request, self.spec, self.accepted)
        for step in steps:
            await asyncio.sleep(self.delay_s)
            yield step
            part = ids[done : done + step.emitted]
            yield Chunk(at_ns=time.perf_counter_ns(), tokens=len(part), text=fake_text(part))
            done += step.emitted
        if name in self.silent:
            return
        usage = Usage(
            prompt_tokens=fake_prompt_tokens(request),
            completion_tokens=len(ids),
            verify_steps=len(steps),
            drafted=sum(s.drafted for s in steps),
            accepted=sum(s.accepted for s in steps),
        )
        yield Finished(finish=Finish.LENGTH, usage=usage, output_ids=ids)

    async def close(self) -> None:
        self.closed += 1

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self.in_flight:  # noqa: ASYNC110  # the counter has no event
            await asyncio.sleep(0.005)


def fake_prompt_tokens(request: Request) -> int:
    """The length of the prompt: one token a character, or the ids that were given."""
    if request.prompt_ids is not None:
        return len(request.prompt_ids)
    if request.prompt is not None:
        return len(request.prompt)
    return sum(len(m.content) for m in request.messages)


def fake_steps(
    request: Request, spec: SpecConfig, accepted: Sequence[int] = ACCEPTED
) -> tuple[StepTrace, ...]:
    """The verify steps of ``request`` at ``spec``; the last one is cut by max_tokens."""
    steps: list[StepTrace] = []
    left = request.sampling.max_tokens - 1
    committed = fake_prompt_tokens(request) + 1
    while left > 0:
        index = len(steps)
        hit = min(accepted[index % len(accepted)], spec.num_steps)
        emitted = min(hit + 1, left)
        steps.append(
            StepTrace(
                batch_step=index,
                batch=1,
                committed=committed,
                drafted=spec.num_draft_tokens - 1,
                depth=spec.num_steps,
                accepted=hit,
                emitted=emitted,
                ranks=(0,) * hit,
                draft_ns=1_000,
                extend_ns=500,
                verify_ns=2_000,
                other_ns=100,
            )
        )
        left -= emitted
        committed += emitted
    return tuple(steps)
