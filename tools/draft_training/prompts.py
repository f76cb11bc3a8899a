"""Prompts to train on: workloads and files by name, and the demo pair's training templates.

``templates:N`` makes N prompts, the five categories in turn, from the templates that the demo pair
is trained on; the shipped workloads are made from other, held-out ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from specbench.engine.text import TextCodec
from specbench.errors import WorkloadError
from specbench.request import Message, Request, SamplingParams
from specbench.workload import load_workload
from tools.demo_pair.corpus import generated
from tools.demo_pair.example import CATEGORIES
from tools.draft_training.plan import Plan

TEMPLATES = "templates:"


def training_requests(plan: Plan, codec: TextCodec) -> tuple[list[Request], dict[str, object]]:
    """Requests in a shuffled order with ids of their own, and what to record of them.

    The first ``greedy_share`` of them is greedy, the rest at the plan's temperature with a seed
    each. Repeated prompts, those of the evaluation workload, and long ones are left out.

    Raises:
        WorkloadError: a source is unknown or empty, or nothing is left.
    """
    barred = {_key(codec, request) for request in evaluation_requests(plan)}
    taken: dict[tuple[int, ...], Request] = {}
    left_out = {"repeated": 0, "in the evaluation": 0, "too long": 0}
    for source in plan.prompts:
        for request in _source(source, plan.seed):
            key = _key(codec, request)
            if key in barred:
                left_out["in the evaluation"] += 1
            elif key in taken:
                left_out["repeated"] += 1
            elif len(key) > plan.longest_prompt:
                left_out["too long"] += 1
            else:
                taken[key] = request
    if not taken:
        raise WorkloadError(
            f"{', '.join(plan.prompts)}: no prompt to train on is left.",
            expected="Prompts that the evaluation workload does not have.",
        )
    chosen = list(taken.values())
    random.Random(f"{plan.seed}-order").shuffle(chosen)
    greedy = round(plan.greedy_share * len(chosen))
    requests = [_numbered(plan, request, i, i < greedy) for i, request in enumerate(chosen)]
    random.Random(f"{plan.seed}-mix").shuffle(requests)
    requests = requests[: plan.replies or None]
    facts = {"sources": list(plan.prompts), "prompts": len(requests), "left_out": left_out}
    return requests, facts


def evaluation_requests(plan: Plan) -> tuple[Request, ...]:
    """The first requests of the evaluation workload, as many as it has."""
    workload = load_workload(plan.evaluate)
    count = min(plan.evaluate_requests, len(workload.prompts))
    return workload.requests(count, SamplingParams(max_tokens=plan.evaluate_tokens))


def _source(source: str, seed: int) -> Iterator[Request]:
    if not source.startswith(TEMPLATES):
        yield from load_workload(source).requests(None, SamplingParams())
        return
    number = source.removeprefix(TEMPLATES)
    if not number.isdecimal() or int(number) < 1:
        raise WorkloadError(f"{source!r} names no number.", expected="Such as templates:600.")
    streams = [generated(c, random.Random(f"{seed}-{c}-prompts")) for c in CATEGORIES]
    for index in range(int(number)):
        example = next(streams[index % len(streams)])
        system = [Message(role="system", content=example.system)] if example.system else []
        yield Request(
            request_id=f"{source}#{index}",
            messages=(*system, Message(role="user", content=example.turns[0][0])),
            category=example.category,
        )


def _numbered(plan: Plan, request: Request, index: int, greedy: bool) -> Request:
    sampling = SamplingParams(
        temperature=0.0 if greedy else plan.temperature,
        seed=plan.seed + index,
        max_tokens=plan.max_tokens,
    )
    return replace(request, request_id=f"t{index}", sampling=sampling, follow_ups=())


def _key(codec: TextCodec, request: Request) -> tuple[int, ...]:
    return codec.prompt_ids(request)
