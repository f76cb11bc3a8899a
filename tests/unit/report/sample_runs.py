"""A made-up sweep that behaves like a real one: seeded, with the timing model written down.

A prompt has a fixed output and, at each output position, a fixed depth to which a draft is right
there; so deeper chains extend shallower ones and greedy outputs are equal in all arms. Forwards
of a closed loop run at up to ``batch_size`` requests and cost what ``StepCost`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbench.config import SpecConfig
from specbench.estimate import Evidence
from specbench.metrics.summary import SummaryInput
from specbench.request import Message, Request, SamplingParams
from specbench.trace import ArmRun, Chunk, Finish, Provenance, RequestTrace, StepTrace, Usage

MS = 1_000_000
WORKLOAD = "sample"
CATEGORIES = {"arithmetic": 0.86, "code": 0.80, "dialogue": 0.62, "extraction": 0.90, "prose": 0.55}
POINTS = (
    SpecConfig.baseline(),
    *(SpecConfig.chain(depth) for depth in range(1, 6)),
    SpecConfig(num_steps=3, topk=4, num_draft_tokens=8),
    SpecConfig(num_steps=3, topk=4, num_draft_tokens=16),
    SpecConfig(num_steps=5, topk=4, num_draft_tokens=8),
    SpecConfig(num_steps=5, topk=4, num_draft_tokens=16),
)
PROVENANCE = Provenance(
    started_at="2024-05-01T12:00:00+00:00",
    command=("specbench", "sweep", "--num-steps", "0..5", "--topk", "1,4"),
    software={"specbench": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "commit": "abc1234"},
    machine={"cpu": "Example 8-core", "memory_gib": "32"},
    device={"device": "cpu", "dtype": "float32", "attention": "sdpa"},
    inputs={"target_sha256": "1111aaaa", "draft_sha256": "2222bbbb", "sample_sha256": "3333cccc"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Milliseconds of a forward: a fixed part and one per node and request."""

    base: float = 8.0
    node: float = 0.12
    draft_level: float = 0.9
    extend: float = 0.8
    other: float = 0.5

    def parts(self, spec: SpecConfig, batch: int) -> tuple[float, float, float, float]:
        """draft, extend, verify, other."""
        nodes = spec.num_draft_tokens * batch
        verify = self.base + self.node * nodes
        if spec.is_baseline:
            return 0.0, 0.0, verify, self.other
        width = 1.0 if spec.topk == 1 else 1.5
        return self.draft_level * spec.num_steps * width, self.extend, verify, self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt's answer: its tokens, and how deep a draft is right at each position."""

    request: Request
    ids: tuple[int, ...]
    chain_right: tuple[int, ...]
    tree_right: tuple[int, ...]

    def accepted(self, spec: SpecConfig, position: int) -> int:
        """Drafts kept by a step whose first draft is output token ``position``."""
        right = self.tree_right if spec.topk > 1 else self.chain_right
        width = min(1.0, (spec.num_draft_tokens - 1) / 12) if spec.topk > 1 else 1.0
        depth = right[position] if position < len(right) else 0
        plain = self.chain_right[position] if position < len(right) else 0
        return min(spec.num_steps, max(plain, round(width * depth)))


def prompts(count: int, *, seed: int = 1, looping: bool = False) -> tuple[Prompt, ...]:
    """``count`` prompts, categories in turn."""
    rng = np.random.default_rng(seed)
    names = list(CATEGORIES)
    made = []
    for index in range(count):
        category = names[index % len(names)]
        length = int(np.clip(rng.lognormal(4.0, 0.4), 20, 96))
        chance = float(np.clip(CATEGORIES[category] + rng.normal(0, 0.05), 0.05, 0.97))
        ids = rng.integers(5, 2000, length)
        if looping:
            ids[8:] = np.resize(ids[8:12], length - 8)
        depth = rng.geometric(1 - chance, length) - 1
        wider = rng.geometric(1 - min(0.97, chance + 0.08), length) - 1
        request = Request(
            request_id=f"{category}-{index}",
            messages=(Message(role="user", content=f"question {index}"),),
            prompt_id=f"{category}-{index}",
            workload=WORKLOAD,
            category=category,
            sampling=SamplingParams(max_tokens=length),
        )
        made.append(
            Prompt(
                request=request,
                ids=tuple(int(token) for token in ids),
                chain_right=tuple(int(d) for d in depth),
                tree_right=tuple(int(max(a, b)) for a, b in zip(depth, wider, strict=True)),
            )
        )
    return tuple(made)


class _Loop:
    """A closed loop over ``asked`` with ``size`` slots on a clock of its own."""

    def __init__(
        self, spec: SpecConfig, size: int, cost: StepCost, rng: np.random.Generator
    ) -> None:
        self.spec, self.size, self.cost, self.rng = spec, size, cost, rng
        self.now = 0
        self.forward = 0

    def run(self, asked: Sequence[Prompt]) -> list[RequestTrace]:
        waiting = list(asked)
        running: list[_State] = []
        done: list[RequestTrace] = []
        while waiting or running:
            while waiting and len(running) < self.size:
                running.append(self.prefill(waiting.pop(0)))
            self.step(running)
            done += [state.trace() for state in running if state.ended]
            running = [state for state in running if not state.ended]
        return done

    def prefill(self, prompt: Prompt) -> _State:
        sent = self.now
        self.now += round(self.rng.normal(12, 0.6) * MS)
        return _State(prompt, sent, self.now)

    def step(self, running: Sequence[_State]) -> None:
        noise = float(np.exp(self.rng.normal(0, 0.03)))
        parts = [round(p * noise * MS) for p in self.cost.parts(self.spec, len(running))]
        self.now += sum(parts)
        for state in running:
            state.advance(self.spec, self.forward, len(running), parts, self.now)
        self.forward += 1


class _State:
    """A request that is being answered."""

    def __init__(self, prompt: Prompt, sent: int, first: int) -> None:
        self.prompt, self.sent = prompt, sent
        self.made = 1
        self.steps: list[StepTrace] = []
        self.chunks = [Chunk(at_ns=first, tokens=1, text="a ")]

    @property
    def ended(self) -> bool:
        return self.made >= len(self.prompt.ids)

    def advance(
        self, spec: SpecConfig, forward: int, batch: int, parts: Sequence[int], now: int
    ) -> None:
        accepted = self.prompt.accepted(spec, self.made)
        emitted = min(accepted + 1, len(self.prompt.ids) - self.made)
        draft, extend, verify, other = parts
        self.steps.append(
            StepTrace(
                batch_step=forward,
                batch=batch,
                committed=20 + self.made,
                drafted=spec.num_draft_tokens - 1,
                depth=spec.num_steps,
                accepted=accepted,
                emitted=emitted,
                draft_ns=draft,
                extend_ns=extend,
                verify_ns=verify,
                other_ns=other,
            )
        )
        self.made += emitted
        self.chunks.append(Chunk(at_ns=now, tokens=emitted, text="b " * emitted))

    def trace(self) -> RequestTrace:
        return RequestTrace(
            request=self.prompt.request,
            due_ns=self.sent,
            sent_ns=self.sent,
            end_ns=self.chunks[-1].at_ns,
            chunks=tuple(self.chunks),
            steps=tuple(self.steps),
            finish=Finish.STOP,
            evidence=Evidence.STEPS,
            usage=Usage(completion_tokens=len(self.prompt.ids)),
            output_ids=self.prompt.ids,
        )


def arm_runs(
    spec: SpecConfig,
    asked: Sequence[Prompt],
    *,
    batch_size: int = 1,
    blocks: int = 2,
    cost: StepCost | None = None,
    seed: int = 3,
) -> tuple[ArmRun, ...]:
    """The blocks of one arm; ``asked`` is dealt out over them in order."""
    rng = np.random.default_rng((seed, spec.num_steps, spec.num_draft_tokens, batch_size))
    runs = []
    for block in range(blocks):
        part = asked[block * len(asked) // blocks : (block + 1) * len(asked) // blocks]
        loop = _Loop(spec, batch_size, cost or StepCost(), rng)
        traces = loop.run(part)
        runs.append(
            ArmRun(
                point_id=spec.point_id,
                workload=WORKLOAD,
                batch_size=batch_size,
                temperature=0.0,
                block=block,
                started_ns=0,
                wall_ns=loop.now,
                requests=tuple(traces),
            )
        )
    return tuple(runs)


def sample_input(
    *,
    requests: int = 30,
    points: Sequence[SpecConfig] = POINTS,
    batch_sizes: Sequence[int] = (1, 4),
    costs: Mapping[str, StepCost] | None = None,
    looping: bool = False,
) -> SummaryInput:
    """A whole sweep. ``costs`` replaces the cost of single points."""
    asked = prompts(requests, looping=looping)
    runs = tuple(
        run
        for batch_size in batch_sizes
        for spec in points
        for run in arm_runs(
            spec, asked, batch_size=batch_size, cost=(costs or {}).get(spec.point_id)
        )
    )
    return SummaryInput(
        runs=runs,
        points={spec.point_id: spec for spec in points},
        backend="inprocess",
        target="sample-target",
        draft="sample-draft",
    )
