"""All figures of an arm and of its categories, in one record each."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Estimate, Evidence
from specbench.metrics import acceptance
from specbench.metrics.arms import Arm, ArmKey
from specbench.metrics.breakdowns import Breakdown
from specbench.metrics.goodput import Goodput
from specbench.metrics.latency import Latency, latency
from specbench.metrics.lossless import Lossless
from specbench.metrics.pool import Pool
from specbench.metrics.reading import Reading
from specbench.metrics.speedup import Decomposition, decode_speedup, decompose
from specbench.metrics.sums import WHOLE
from specbench.metrics.throughput import StepSplit, output_tok_s, step_split

ALL = WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured of ``category`` (``all``: everything); None where it was not.

    ``accept_length`` falls back to ``emitted_length`` where accepted drafts were not counted; the
    caveat ``weak_evidence`` says so.
    Baseline, speedup, step split and decomposition follow semantics.md 8 and 14.
    """

    category: str
    evidence: Evidence
    requests: int
    output_tokens: int | None
    verify_steps: int | None
    accept_length: Estimate | None
    emitted_length: Estimate | None
    accept_rate_depth: Estimate | None
    accept_rate_node: Estimate | None
    output_tok_s: Estimate | None
    baseline_tok_s: Estimate | None
    speedup: Estimate | None
    decomposition: Decomposition | None
    split: StepSplit | None
    latency: Latency
    histogram: tuple[int, ...] | None
    survival: tuple[float, ...] | None
    conditional: tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm. ``total`` pools all categories; ``categories`` has one record for each.

    ``reading``, ``goodput`` (against stated objectives) and ``breakdowns`` are None or empty where
    the evidence, or the question, is missing.
    """

    key: ArmKey
    spec: SpecConfig
    total: Figures
    categories: tuple[Figures, ...]
    lossless: Lossless | None
    caveats: tuple[Caveat, ...]
    reading: Reading | None = None
    goodput: Goodput | None = None
    breakdowns: tuple[Breakdown, ...] = ()

    def has(self, code: str) -> bool:
        """True when a caveat of this code hangs on the arm."""
        return any(caveat.code == code for caveat in self.caveats)


def figures(
    arm: Arm,
    spec: SpecConfig,
    baseline: Arm | None,
    *,
    category: str | None = None,
    open_loop: bool = False,
) -> Figures:
    """Compute everything of ``arm`` against ``baseline``.

    Args:
        arm: the arm.
        spec: its point.
        baseline: plain decoding in the same cell; None when there is none, or for itself.
        category: only this category; None for all.
        open_loop: requests came on a schedule: no step split, no decomposition.
    """
    name = category or ALL
    kept = arm.requests.of_category(category)
    if kept is arm.requests:
        category = None  # the only one: it ran alone
    # At a larger batch, requests of several categories share the machine: nothing of a category's
    # own can be said of throughput, speedup or steps.
    alone = category is None or arm.key.cell.batch_size == 1
    closed = alone and not open_loop
    split = step_split(arm, category) if closed else None
    return Figures(
        category=name,
        evidence=acceptance.weakest(kept),
        requests=len(kept),
        output_tokens=kept.total("completion"),
        verify_steps=kept.total("verify_steps"),
        accept_length=_accept_length(kept, spec),
        emitted_length=acceptance.emitted_length(kept),
        accept_rate_depth=acceptance.accept_rate_depth(kept, chain=spec.is_chain),
        accept_rate_node=acceptance.accept_rate_node(kept),
        output_tok_s=output_tok_s(arm, category),
        baseline_tok_s=output_tok_s(baseline, category) if baseline else None,
        speedup=decode_speedup(baseline.requests, kept) if alone and baseline else None,
        decomposition=_decomposition(baseline, category, kept, split) if baseline else None,
        split=split,
        latency=latency(kept),
        histogram=acceptance.histogram(kept),
        survival=acceptance.survival(kept),
        conditional=acceptance.conditional(kept),
    )


def _decomposition(
    baseline: Arm, category: str | None, kept: Pool, split: StepSplit | None
) -> Decomposition | None:
    if split is None:
        return None
    plain = baseline.requests.of_category(category)
    return decompose(plain, step_split(baseline, category), kept, split)


def _accept_length(kept: Pool, spec: SpecConfig) -> Estimate | None:
    """The headline, or what stands in for it where accepted drafts were not counted."""
    length = acceptance.accept_length(kept)
    if length is None and not spec.is_baseline:
        return acceptance.emitted_length(kept)
    return length
