"""The target's own greedy text: what a probe scores a draft on (engine-spec 11.6).

Text that the target would not write answers another question: a draft is only ever asked about
the target's own next tokens. Generation goes ``past`` tokens beyond the cut, because drafting
clips neither at max_tokens nor at a stop token (semantics 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.errors import WorkloadError
from specbench.request import Request
from specbench.trace import StepTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One text: ``tokens`` are the prompt, ``output_len`` tokens of reply and those past the cut.

    ``prompt_len`` and ``output_len`` count tokens; the rest of ``tokens`` lies past the cut.
    """

    request_id: str
    category: str
    tokens: tuple[int, ...]
    prompt_len: int
    output_len: int


def greedy_texts(
    pair: ModelPair, requests: Sequence[Request], *, past: int, batch_size: int = 8
) -> tuple[Sample, ...]:
    """Continue every request greedily, without a draft.

    Args:
        pair: the loaded models; only the target is run.
        requests: prompts in any form; their sampling gives max_tokens and stop tokens. Stop
            strings are not looked at.
        past: tokens to go on for after the cut.
        batch_size: sequences together.

    Raises:
        WorkloadError: there are no requests.
        RequestError: a prompt does not fit the target.
    """
    if not requests:
        raise WorkloadError("the probe has no text.", expected="At least one request.")
    prompts = [pair.codec.prompt_ids(request) for request in requests]
    longest = max(
        len(p) + r.sampling.max_tokens + past for p, r in zip(prompts, requests, strict=True)
    )
    lanes = min(batch_size, len(requests))
    engine = Engine(pair, EngineConfig(max_batch_size=lanes, max_len=longest))
    engine.configure(SpecConfig.baseline(), lanes)
    outputs = outputs_of(engine, [_onward(r, past) for r in requests])
    return tuple(
        _sample(pair, request, prompt, output)
        for request, prompt, output in zip(requests, prompts, outputs, strict=True)
    )


def _onward(request: Request, past: int) -> Request:
    """The same request, greedy, that nothing stops before max_tokens + past."""
    sampling = replace(
        request.sampling,
        temperature=0.0,
        max_tokens=request.sampling.max_tokens + past,
        ignore_eos=True,
        stop=(),
        stop_token_ids=(),
    )
    return replace(request, sampling=sampling)


@torch.inference_mode()
def outputs_of(engine: Engine, requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Output ids of each request, in order; the engine is run until it is idle.

    Raises:
        BackendError: the first request that failed.
    """
    handles = [engine.submit(request) for request in requests]
    found: dict[int, tuple[int, ...]] = {}
    while not engine.idle:
        for emission in engine.step():
            if emission.error is not None:
                raise emission.error
            if emission.finish is not None:
                found[emission.handle] = emission.output_ids
    return [found[handle] for handle in handles]


def steps_of(engine: Engine, request: Request) -> tuple[list[StepTrace], tuple[int, ...]]:
    """Steps and output ids of one request; the engine is run until it is idle.

    A request that fails has the steps and ids that it came to.
    """
    engine.submit(request)
    traces: list[StepTrace] = []
    ids: tuple[int, ...] = ()
    while not engine.idle:
        for emission in engine.step():
            if emission.trace is not None:
                traces.append(emission.trace)
            if emission.finish is not None:
                ids = emission.output_ids
    return traces, ids


def _sample(
    pair: ModelPair, request: Request, prompt: tuple[int, ...], output: tuple[int, ...]
) -> Sample:
    sampling = request.sampling
    eos = () if sampling.ignore_eos else pair.target_spec.eos_ids
    stops = {*eos, *sampling.stop_token_ids}
    within = output[: sampling.max_tokens]
    ends = [at + 1 for at, token in enumerate(within) if token in stops]
    length = ends[0] if ends else len(within)
    past = len(output) - sampling.max_tokens
    return Sample(
        request_id=request.request_id,
        category=request.category,
        tokens=(*prompt, *output[: length + past]),
        prompt_len=len(prompt),
        output_len=length,
    )
