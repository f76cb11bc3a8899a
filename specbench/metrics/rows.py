"""The rows of ``summary.csv``: plain values, one field per column, in the order of the columns.

Only open-loop runs have ``request_rate``; ``survival`` spreads to survival_1 … survival_K.
Fields after it are columns only where a row has a value.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.estimate import Caveat, Estimate
from specbench.metrics.energy import GpuUse
from specbench.metrics.figures import ALL, ArmResult, Figures
from specbench.metrics.summary import Summary
from specbench.metrics.validity import counts

SAMPLE_CODES = frozenset({"too_few_requests", "too_few_steps"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """One row: a point in a cell, all its requests or one category. None: not measured."""

    point_id: str
    backend: str
    target: str
    draft: str
    workload: str
    category: str
    batch_size: int
    temperature: float
    num_steps: int
    topk: int
    num_draft_tokens: int
    requests: int
    output_tokens: int | None
    verify_steps: int | None
    accept_length: float | None
    accept_length_low: float | None
    accept_length_high: float | None
    accept_rate_depth: float | None
    accept_rate_node: float | None
    output_tok_s: float | None
    output_tok_s_low: float | None
    output_tok_s_high: float | None
    baseline_tok_s: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    break_even_accept_length: float | None
    step_ms: float | None
    draft_ms: float | None
    extend_ms: float | None
    verify_ms: float | None
    other_ms: float | None
    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    tpot_ms_p50: float | None
    tpot_ms_p99: float | None
    chunk_gap_ms_p50: float | None
    chunk_gap_ms_p99: float | None
    gpu_util_pct: float | None = None
    gpu_power_w: float | None = None
    energy_j_per_token: float | None = None
    lossless: str | None
    validity: str
    survival: tuple[float, ...]
    request_rate: float | None
    energy_j_per_accepted: float | None = None


def rows(summary: Summary) -> tuple[SummaryRow, ...]:
    """One row per arm with category ``all``, each followed by one per category."""
    return tuple(
        _row(summary, arm, seen) for arm in summary.arms for seen in (arm.total, *arm.categories)
    )


def validity(caveats: tuple[Caveat, ...]) -> str:
    """``ok``, or the codes in order of appearance, joined by semicolons."""
    return ";".join(dict.fromkeys(caveat.code for caveat in caveats)) or "ok"


def _row(summary: Summary, arm: ArmResult, seen: Figures) -> SummaryRow:
    cell, spec, split, latency = arm.key.cell, arm.spec, seen.split, seen.latency
    parts, speedup = seen.decomposition, seen.speedup
    return SummaryRow(
        point_id=arm.key.point_id,
        backend=summary.backend,
        target=summary.target,
        draft=summary.draft,
        workload=cell.workload,
        category=seen.category,
        batch_size=cell.batch_size,
        temperature=cell.temperature,
        num_steps=spec.num_steps,
        topk=spec.topk,
        num_draft_tokens=spec.num_draft_tokens,
        requests=seen.requests,
        output_tokens=seen.output_tokens,
        verify_steps=seen.verify_steps,
        accept_length=_value(seen.accept_length),
        accept_length_low=seen.accept_length.low if seen.accept_length else None,
        accept_length_high=seen.accept_length.high if seen.accept_length else None,
        accept_rate_depth=_value(seen.accept_rate_depth),
        accept_rate_node=_value(seen.accept_rate_node),
        output_tok_s=_value(seen.output_tok_s),
        output_tok_s_low=seen.output_tok_s.low if seen.output_tok_s else None,
        output_tok_s_high=seen.output_tok_s.high if seen.output_tok_s else None,
        baseline_tok_s=_value(seen.baseline_tok_s),
        speedup=_value(speedup),
        speedup_low=speedup.low if speedup else None,
        speedup_high=speedup.high if speedup else None,
        break_even_accept_length=parts.break_even_accept_length if parts else None,
        step_ms=split.step_ms if split else None,
        draft_ms=split.draft_ms if split else None,
        extend_ms=split.extend_ms if split else None,
        verify_ms=split.verify_ms if split else None,
        other_ms=split.other_ms if split else None,
        ttft_ms_p50=latency.ttft_ms_p50,
        ttft_ms_p99=latency.ttft_ms_p99,
        tpot_ms_p50=latency.tpot_ms_p50,
        tpot_ms_p99=latency.tpot_ms_p99,
        chunk_gap_ms_p50=latency.chunk_gap_ms_p50,
        chunk_gap_ms_p99=latency.chunk_gap_ms_p99,
        lossless=arm.lossless.verdict.value if arm.lossless else None,
        validity=validity(_caveats(arm, seen)),
        survival=seen.survival or (),
        request_rate=summary.request_rate,
        **_gpu(summary.gpu.get((arm.key, seen.category))),
    )


def _gpu(use: GpuUse | None) -> dict[str, float | None]:
    """The columns of the GPUs; none of them where nothing was sampled."""
    if use is None:
        return {}
    return {
        "gpu_util_pct": use.util_pct,
        "gpu_power_w": use.power_w,
        "energy_j_per_token": use.j_per_token,
        "energy_j_per_accepted": use.j_per_accepted,
    }


def _caveats(arm: ArmResult, seen: Figures) -> tuple[Caveat, ...]:
    """A category inherits the arm's caveats, but its sample size is its own."""
    if seen.category == ALL:
        return arm.caveats
    inherited = (caveat for caveat in arm.caveats if caveat.code not in SAMPLE_CODES)
    return (*counts(seen), *inherited)


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value
