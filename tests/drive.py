"""Run requests through an engine by hand, and collect what it emits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.errors import BackendError
from specbench.request import Request, SamplingParams
from specbench.trace import Chunk, Finish, StepTrace, Usage
from tests.tiny import TinyPair, shared_pair

CHAINS = [SpecConfig.chain(k) for k in range(1, 8)]
TREES = [
    SpecConfig(num_steps=k, topk=b, num_draft_tokens=n)
    for k, b, n in ((1, 4, 5), (2, 2, 4), (3, 2, 6), (3, 4, 8), (5, 4, 16), (4, 3, 24), (5, 2, 4))
]


@dataclass(slots=True)
class Outcome:
    """Everything emitted for one request."""

    ids: tuple[int, ...] = ()
    text: str = ""
    steps: list[StepTrace] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    finish: Finish | None = None
    usage: Usage = dataclasses.field(default_factory=Usage)
    error: BackendError | None = None


def new_engine(pair: TinyPair | None = None, **settings: object) -> Engine:
    """An engine on a tiny pair in float64, where greedy equality has no excuse."""
    pair = pair or shared_pair()
    config = EngineConfig(**{"dtype": "float64", "max_len": 512, **settings})  # type: ignore[arg-type]
    return Engine(ModelPair.load(pair.target, pair.draft, config), config)


def new_request(
    name: str, prompt: Sequence[int], max_tokens: int = 24, **sampling: object
) -> Request:
    """A request by token ids."""
    params = SamplingParams(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return Request(request_id=name, prompt_ids=tuple(prompt), sampling=params)


def prompts(count: int) -> list[list[int]]:
    """Prompts of different lengths."""
    return [[(j * 7 + i * 31 + 5) % 250 for j in range(2 + 5 * i)] for i in range(count)]


def drive(engine: Engine, requests: Sequence[Request], *, audit: bool = True) -> list[Outcome]:
    """Submit all, step until idle; audits lanes and slots after every step."""
    outcomes = {engine.submit(request): Outcome() for request in requests}
    while not engine.idle:
        for emission in engine.step():
            seen = outcomes[emission.handle]
            if emission.trace is not None:
                seen.steps.append(emission.trace)
            if emission.chunk is not None:
                seen.chunks.append(emission.chunk)
                seen.text += emission.chunk.text
            if emission.finish is not None:
                seen.finish, seen.usage = emission.finish, emission.usage
                seen.ids, seen.error = emission.output_ids, emission.error
        if audit:
            engine.audit()
    assert engine.slots_in_use == 0
    return list(outcomes.values())


def accept_length(outcomes: Sequence[Outcome]) -> float:
    """1 + sum of accepted / verify steps, pooled."""
    steps = [step for outcome in outcomes for step in outcome.steps]
    return 1 + sum(step.accepted for step in steps) / len(steps)
