"""Speedup: paired decode time per emitted token, and the three numbers that explain it.

Headline (semantics.md 11): total decode time per token of the baseline ÷ the same of the arm,
over the prompts that both answered, paired by (workload, prompt, turn). In a greedy run both arms
emit the same tokens and the tokens cancel; where they differ the figure stays per emitted token.

Explanation: at a fixed batch speedup = emitted tokens per step x plain step time ÷ speculative
step time. The step-time ratio is the break-even accept length: with fewer tokens per step than
that, speculation is slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specbench.estimate import Estimate, Evidence
from specbench.metrics.acceptance import as_estimate, emitted_length
from specbench.metrics.latency import tpot_is_exact
from specbench.metrics.pool import Pool, add_up, numbered
from specbench.metrics.stats import LEAST_RUNS, Interval, log_linear
from specbench.metrics.sums import PromptKey, RequestSums
from specbench.metrics.throughput import StepSplit, outside_share

Pair = tuple[RequestSums, RequestSums]
SPEEDUP_EXPONENTS = (1, -1, -1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """Why an arm is as fast as it is. ``outside`` are shares of decode time not in any step."""

    emitted_length: float
    plain_step_ms: float
    spec_step_ms: float
    plain_outside: float | None
    spec_outside: float | None

    @property
    def break_even_accept_length(self) -> float:
        """Speculative step time ÷ plain step time: tokens per step that just pay for the step."""
        return self.spec_step_ms / self.plain_step_ms

    @property
    def product(self) -> float:
        """The speedup that the step times predict."""
        return self.emitted_length / self.break_even_accept_length


def decode_speedup(baseline: Sequence[RequestSums], arm: Sequence[RequestSums]) -> Estimate | None:
    """How many times faster ``arm`` decodes than ``baseline``, with its interval.

    Conversations are resampled. From five blocks on, blocks are resampled as well, and the wider
    interval is taken: slow seconds of a machine hit neighbouring requests of one arm, which then
    are not independent. Where every prompt ran in the same five blocks or more, blocks alone are
    (they are the runs of semantics.md 19). None when no prompt was answered and timed in both.
    Its evidence is that of the requests, and CHUNKS at most where the tokens of a first delivery
    are not known, so that n - 1 tokens share the time (semantics.md 10).

    >>> from specbench.metrics.example import run_of, trace_of
    >>> from specbench.metrics.sums import complete_sums
    >>> plain = complete_sums([run_of(trace_of([0] * 12, depth=0))])
    >>> fast = complete_sums([run_of(trace_of([3, 3, 3], depth=3, step_ms=20))])
    >>> decode_speedup(plain, fast).value
    2.0
    """
    pairs = paired(baseline, arm)
    if not pairs:
        return None
    table = np.array(
        [
            (plain.decode_ns, plain.decode_tokens, spec.decode_ns, spec.decode_tokens)
            for plain, spec in pairs
        ],
        dtype=np.float64,
    )
    blocks = add_up(*numbered([plain.block for plain, _ in pairs]), table.T)
    by_block = log_linear(blocks, SPEEDUP_EXPONENTS, least=LEAST_RUNS)
    found = by_block
    if not _blocks_are_runs(pairs):
        prompts = add_up(*numbered([plain.conversation for plain, _ in pairs]), table.T)
        found = log_linear(prompts, SPEEDUP_EXPONENTS)
        if found is not None and by_block is not None and _wider(by_block, found):
            found = replace(by_block, n=found.n)
    requests = [request for pair in pairs for request in pair]
    evidence = min(request.evidence for request in requests)
    if not tpot_is_exact(requests):
        evidence = min(evidence, Evidence.CHUNKS)
    return as_estimate(found, unit="x", evidence=evidence)


def _wider(one: Interval, other: Interval) -> bool:
    """True when both have intervals and that of ``one`` reaches farther."""
    if one.high is None or other.high is None:
        return False
    return one.high > other.high


def paired(baseline: Sequence[RequestSums], arm: Sequence[RequestSums]) -> list[Pair]:
    """Requests of the two arms that answer the same prompt and turn, repeats in block order."""
    mine, theirs = Pool.of(arm).by_prompt, Pool.of(baseline).by_prompt
    return [
        pair
        for key, found in theirs.items()
        for pair in zip(found, mine.get(key, ()), strict=False)
    ]


def _blocks_are_runs(pairs: Sequence[Pair]) -> bool:
    """True when every prompt was repeated in the same five blocks or more."""
    blocks: dict[PromptKey, set[int]] = {}
    for plain, _ in pairs:
        blocks.setdefault(plain.prompt, set()).add(plain.block)
    every = list(blocks.values())
    return len(every[0]) >= LEAST_RUNS and all(seen == every[0] for seen in every)


def decompose(
    plain: Pool, plain_split: StepSplit | None, spec: Pool, spec_split: StepSplit | None
) -> Decomposition | None:
    """The three numbers behind a speedup; None where step times or steps were not seen.

    Meant for a closed loop only: with an open loop the batch varies (semantics.md 8).

    Args:
        plain: requests of the baseline.
        plain_split: where its steps' time went.
        spec: requests of the arm, of the same prompts.
        spec_split: likewise.
    """
    per_step = emitted_length(spec)
    if per_step is None or plain_split is None or spec_split is None:
        return None
    return Decomposition(
        emitted_length=per_step.value,
        plain_step_ms=plain_split.step_ms,
        spec_step_ms=spec_split.step_ms,
        plain_outside=outside_share(plain),
        spec_outside=outside_share(spec),
    )
