"""Reservations about what was asked and how acceptance came about.

==================== ======== ==================================================================
code                 severity when
==================== ======== ==================================================================
synthetic_prompts    warning  prompts are random words, or token ids whose text repeats nothing
template_missing     note     prompts went to the model as raw text, without a chat template
length_capped        note     over half of the outputs ended at max_tokens, not by themselves
prefix_cache         warning  over a twentieth of the prompt tokens came from a prefix cache
synthetic_acceptance invalid  nearly all steps accept one of two neighbouring counts: a server that
                              simulates its acceptance (SGLANG_SIMULATE_ACC_LEN and the like)
==================== ======== ==================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Severity
from specbench.metrics.acceptance import histogram
from specbench.metrics.arms import Arm
from specbench.metrics.sums import RequestSums
from specbench.prompts.prompt import SYNTHETIC
from specbench.trace import Finish

CAPPED_SHARE = 0.5
CACHED_SHARE = 0.05
RANDOM_LEAST_IDS = 32
RANDOM_DISTINCT = 0.97
SIMULATED_SHARE = 0.995
SIMULATED_LEAST_STEPS = 200
SIMULATED_LEAST_DEPTH = 3


def prompt_caveats(arm: Arm, spec: SpecConfig) -> Iterable[Caveat]:
    """What the prompts, their ends and the counts of ``arm`` give reason to doubt."""
    yield from _prompts(arm)
    yield from _ends(arm)
    yield from _cache(arm)
    if not spec.is_baseline:
        yield from _simulated(arm.requests, spec)


def _prompts(arm: Arm) -> Iterable[Caveat]:
    asked = [trace.request for trace in arm.measured]
    made_up = sum(r.category == SYNTHETIC or is_random(r.prompt_ids) for r in asked)
    if made_up:
        yield Caveat(
            code="synthetic_prompts",
            severity=Severity.WARNING,
            text=f"{made_up} of {len(asked)} prompts are random: drafts are accepted on text that "
            "follows from what stands before it",
        )
    raw = sum(r.prompt is not None for r in asked)
    if raw:
        yield Caveat(
            code="template_missing",
            severity=Severity.NOTE,
            text=f"{raw} of {len(asked)} prompts were sent as raw text without a chat template, "
            "which a chat model was not trained on",
        )


def is_random(ids: Sequence[int] | None) -> bool:
    """True for 32 token ids or more of which nearly none occurs twice: text repeats its words.

    >>> is_random(range(500, 600)), is_random([1, 2, 3] * 20), is_random(None)
    (True, False, False)
    """
    if ids is None or len(ids) < RANDOM_LEAST_IDS:
        return False
    return len(set(ids)) >= RANDOM_DISTINCT * len(ids)


def _ends(arm: Arm) -> Iterable[Caveat]:
    capped = [
        r
        for r in arm.requests
        if r.trace.finish is Finish.LENGTH and not r.trace.request.sampling.ignore_eos
    ]
    if len(capped) > CAPPED_SHARE * len(arm.requests):
        yield Caveat(
            code="length_capped",
            severity=Severity.NOTE,
            text=f"{len(capped)} of {len(arm.requests)} outputs ended at max_tokens: acceptance "
            "is that of their beginnings",
        )


def _cache(arm: Arm) -> Iterable[Caveat]:
    known = [
        (usage.cached_tokens, usage.prompt_tokens)
        for r in arm.requests
        if (usage := r.trace.usage).cached_tokens is not None and usage.prompt_tokens
    ]
    cached, prompt = sum(c or 0 for c, _ in known), sum(p or 0 for _, p in known)
    if prompt and cached > CACHED_SHARE * prompt:
        yield Caveat(
            code="prefix_cache",
            severity=Severity.WARNING,
            text=f"{cached / prompt:.0%} of the prompt tokens came from a prefix cache: time to "
            "first token is not that of a new prompt",
        )


def _simulated(requests: Sequence[RequestSums], spec: SpecConfig) -> Iterable[Caveat]:
    """A drafter's counts spread; simulated ones sit on the two whole numbers round a mean."""
    counts = histogram(requests)
    if counts is None or spec.num_steps < SIMULATED_LEAST_DEPTH:
        return
    steps = sum(counts)
    if steps < SIMULATED_LEAST_STEPS:
        return
    # The pair must lie inside: drafts that nearly never or nearly always hit are no simulation.
    shares = [(sum(counts[j : j + 2]) / steps, j) for j in range(1, spec.num_steps - 1)]
    share, least = max(shares, default=(0.0, 0))
    if share >= SIMULATED_SHARE:
        yield Caveat(
            code="synthetic_acceptance",
            severity=Severity.INVALID,
            text=f"{share:.1%} of {steps} steps accepted {least} or {least + 1} drafts of "
            f"{spec.num_steps}, which no drafter does",
        )
