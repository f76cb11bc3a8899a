"""Does the accept length pay here? Plain and speculative step times of one engine, interleaved.

Break-even accept length is the time of a speculative step over that of a plain one at the same
batch (engine-spec 8.5, semantics 11): with v the verify, e the extend and d one draft step, each
in plain steps, it is v + e + (K - 1) d. Acceptance and speed are judged apart: a right draft below
break-even is right, and slower.

Both arms run the same requests in turn, the order changing each time, so that a drift of the
machine meets both. Step times have long tails, so medians are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specbench.config import SpecConfig
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.doctor.parity_setup import Build, Setup
from specbench.engine.engine import Engine
from specbench.engine.native.models import can_run
from specbench.engine.pair import ModelPair
from specbench.engine.probe_text import steps_of
from specbench.errors import WorkloadError
from specbench.metrics.stats import Interval, log_linear, percentile
from specbench.request import Request, SamplingParams
from specbench.trace import StepTrace

REPLY = 24
MOST_REQUESTS = 12
NOISY = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Medians in nanoseconds; ``ratios`` are the lower quartile, the median and the upper quartile
    by request of speculative over plain steps, ``break_even`` is the ratio of the pooled medians.

    ``parts`` are the medians of verify, extend and draft over the plain step; ``spread`` is the
    middle half of plain steps over their median. ``accept_length`` is that of these requests.
    """

    num_steps: int
    plain_ns: float
    spec_ns: float
    parts: tuple[float, float, float]
    ratios: tuple[float, float, float]
    spread: float
    plain_steps: int
    spec_steps: int
    accept_length: Interval
    where: str

    @property
    def break_even(self) -> float:
        """Accept length at which a step costs what it saves."""
        return self.spec_ns / self.plain_ns

    @property
    def pays(self) -> bool | None:
        """Whether accept length is surely above break-even; None when they are not told apart."""
        low, high = self.accept_length.low, self.accept_length.high
        if low is None or high is None:
            return None
        if high < self.ratios[0]:
            return False
        return True if low > self.ratios[2] else None


def measure_costs(
    pair: ModelPair, build: Build, requests: Sequence[Request], *, num_steps: int
) -> StepCosts:
    """Run every request plainly and with a chain, in turn, and take the median step of each.

    Args:
        pair: loaded models.
        build: makes both engines.
        requests: the first ``MOST_REQUESTS`` are run, ``REPLY`` tokens each, at batch 1.
        num_steps: K of the chain.

    Raises:
        WorkloadError: there are no requests.
    """
    if not requests:
        raise WorkloadError("no request to time.", expected="At least one.")
    prompts = [pair.codec.prompt_ids(request) for request in requests[:MOST_REQUESTS]]
    room = max(map(len, prompts)) + REPLY + num_steps + 2
    specs = (SpecConfig.baseline(), SpecConfig.chain(num_steps))
    arms = [build(Setup(spec=spec, max_len=room)) for spec in specs]
    steps: tuple[list[list[StepTrace]], list[list[StepTrace]]] = ([], [])
    with torch.inference_mode():
        for arm in arms:
            _timed(arm, prompts[0])  # warms caches and buffers
        for number, prompt in enumerate(prompts):
            for which in (0, 1) if number % 2 else (1, 0):
                steps[which].append(_timed(arms[which], prompt))
    return costs_of(steps[0], steps[1], num_steps, _where(pair, arms[1]))


def _timed(engine: Engine, prompt: tuple[int, ...]) -> list[StepTrace]:
    sampling = SamplingParams(max_tokens=REPLY, ignore_eos=True)
    return steps_of(engine, Request(request_id="timed", prompt_ids=prompt, sampling=sampling))[0]


def costs_of(
    plain: Sequence[Sequence[StepTrace]],
    spec: Sequence[Sequence[StepTrace]],
    num_steps: int,
    where: str,
) -> StepCosts:
    """The medians of plain and speculative steps, each by request; ``where`` says what ran them."""
    every_plain = [step.wall_ns for steps in plain for step in steps]
    every_spec = [step for steps in spec for step in steps]
    base = statistics.median(every_plain)
    ratios = [
        statistics.median(s.wall_ns for s in mine) / statistics.median(s.wall_ns for s in theirs)
        for mine, theirs in zip(spec, plain, strict=True)
    ]
    sums = np.array([[len(s) + sum(t.accepted for t in s), len(s)] for s in spec], dtype=np.float64)
    length = log_linear(sums, (1, -1))
    assert length is not None  # every request makes a step
    parts = [
        statistics.median(getattr(step, name) for step in every_spec) / base
        for name in ("verify_ns", "extend_ns", "draft_ns")
    ]
    low, middle, high = (percentile(ratios, q) or 0.0 for q in (25, 50, 75))
    quarters = [percentile(every_plain, q) or 0.0 for q in (25, 75)]
    return StepCosts(
        num_steps=num_steps,
        plain_ns=base,
        spec_ns=statistics.median(step.wall_ns for step in every_spec),
        parts=(parts[0], parts[1], parts[2]),
        ratios=(low, middle, high),
        spread=(quarters[1] - quarters[0]) / base,
        plain_steps=len(every_plain),
        spec_steps=len(every_spec),
        accept_length=length,
        where=where,
    )


def _where(pair: ModelPair, engine: Engine) -> str:
    facts = pair.device_facts
    mode = engine.graph_mode.value
    return (
        f"{facts['device']}, {facts['dtype']}, {mode}, batch 1, torch's kernels{_elsewhere(pair)}"
    )


def _elsewhere(pair: ModelPair) -> str:
    """What a sweep's default kernels are on this pair, where they are not torch's."""
    spec, device = pair.target_spec, pair.device
    if not (spec.plain and can_run(spec.shape, torch.float32, device)):
        return ""
    return "; with a C++ compiler, a sweep on this CPU runs compiled ones: its figures differ"


def costs_finding(costs: StepCosts) -> Finding | None:
    """A warning where accept length is surely below break-even; None else."""
    if costs.pays is not False:
        return None
    verify, extend, draft = costs.parts
    return Finding(
        code="speed.break_even",
        severity=Severity.WARNING,
        title=f"Accept length {_told(costs.accept_length)} at num_steps {costs.num_steps} is under "
        f"this engine's break-even of {costs.break_even:.2f}: slower than plain decoding here, "
        "however right the drafts are",
        evidence=(
            Fact(text=_measured(costs), where="step times"),
            Fact(
                text=f"verify {verify:.2f}, extend {extend:.2f}, draft {draft:.2f} plain steps",
                where="parts of a step",
            ),
            Fact(text=costs.where, where="this engine, not your server"),
        ),
        remedy="Draft fewer tokens (specbench sweep finds the best), or lower the verify cost; "
        "acceptance is another matter and is judged above.",
        figures={
            "accept_length": costs.accept_length.value,
            "break_even": costs.break_even,
            "plain_step_ms": costs.plain_ns / 1e6,
            "speculative_step_ms": costs.spec_ns / 1e6,
        },
        score=0.6,
    )


def costs_line(costs: StepCosts) -> str:
    """One line for a pair that pays, or that cannot be told."""
    verdict = (
        f"{costs.accept_length.value / costs.break_even:.1f} times plain speed in this engine"
        if costs.pays
        else "not told apart from plain speed in this engine"
    )
    return (
        f"Break-even accept length {costs.break_even:.2f} (middle half by request "
        f"{costs.ratios[0]:.2f} to {costs.ratios[2]:.2f}) at num_steps {costs.num_steps}, reached "
        f"{_told(costs.accept_length)}: {verdict} ({costs.where}).{_noise(costs)}"
    )


def _measured(costs: StepCosts) -> str:
    return (
        f"medians of {costs.spec_steps} speculative steps ({costs.spec_ns / 1e6:.2f} ms) and "
        f"{costs.plain_steps} plain ones ({costs.plain_ns / 1e6:.2f} ms), in turn; by request the "
        f"middle half lies from {costs.ratios[0]:.2f} to {costs.ratios[2]:.2f}.{_noise(costs)}"
    )


def _noise(costs: StepCosts) -> str:
    if costs.spread <= NOISY:
        return ""
    return f" The machine was busy: plain steps spread by {100 * costs.spread:.0f} %."


def _told(length: Interval) -> str:
    if length.low is None or length.high is None:
        return f"{length.value:.2f} (too few requests for an interval)"
    return f"{length.value:.2f} ({length.low:.2f} to {length.high:.2f})"
