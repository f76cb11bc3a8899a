"""The ledger: what other tools would print for the same run, and why it differs from ours.

Each row recomputes one tool's figure from the same requests, so that a reader finds "his" number.
Read in the tools' sources: vLLM 0.33 (v1/spec_decode/metrics.py, v1/metrics/stats.py), SGLang
0.5.23 (metrics_reporter.py, tokenizer_manager.py), SpecForge (bench_eagle3.py,
benchmarks/sglang.py), AIPerf (spec_decode_metrics.py), TensorRT-LLM (bench/dataclasses/
reporting.py), NVIDIA specdec_bench (metrics/acceptance_rate.py), evalscope (benchmark_util.py),
GuideLLM, NeMo AutoModel, Spec-Bench, llama.cpp, InferenceX.

A value is a number, a tuple by position, a mapping by request, or None where the run's evidence
does not carry it.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench.config import SpecConfig
from specbench.metrics.acceptance import accept_length, emitted_length, request_accept_lengths
from specbench.metrics.definition_rates import positions, rates
from specbench.metrics.ledger import Definition as Definition
from specbench.metrics.ledger import LedgerTotals, ledger_totals
from specbench.metrics.ledger import Value as Value
from specbench.metrics.sums import RequestSums

OURS = "ours: 1 + accepted / verify steps, pooled"


def definitions(
    requests: Sequence[RequestSums], spec: SpecConfig | None = None
) -> tuple[Definition, ...]:
    """Every tool's accept length and acceptance rate for the complete requests of one arm.

    Args:
        requests: of one arm.
        spec: its point; without it the deepest and widest step seen stand for the configured ones.

    >>> from specbench.metrics.example import run_of, trace_of
    >>> from specbench.metrics.sums import complete_sums
    >>> run = run_of(trace_of([3, 2, 0, 1], depth=3), trace_of([0, 0], depth=3, name="B"))
    >>> {row.value for row in definitions(complete_sums([run])) if row.tool == "specdec_bench"
    ...  and row.field == "Average_AL"}
    {1.6}
    """
    totals = ledger_totals(requests, spec)
    if totals is None:
        return ()
    return (
        *_pooled(requests, totals),
        *_per_request(requests, totals),
        *_with_prefill(totals),
        *_from_chunks(totals),
        *rates(requests, totals),
        *positions(requests, totals),
    )


def _pooled(requests: Sequence[RequestSums], totals: LedgerTotals) -> tuple[Definition, ...]:
    ours = accept_length(requests)
    value = ours.value if ours else None
    mean_drafts = sum(totals.accepted) / sum(totals.steps)
    rows = [
        ("specbench", "accept_length", OURS),
        ("vLLM", "counters and bench serve: mean acceptance length", "the same"),
        ("InferenceX", "golden acceptance length (vLLM path)", "the same"),
        ("llama.cpp", "mean acceptance length", "the same"),
        ("Spec-Bench", "mean accepted tokens", "the same; it trims the step that a stop cut"),
        (
            "SGLang",
            "log and gauge spec_accept_length",
            "the same over the last log interval; with overlap scheduling rows of requests "
            "that ended a step earlier are counted too",
        ),
        ("SGLang", "bench_serving accept length", "the same since start or flush, one DP rank"),
        (
            "SGLang",
            "load endpoint accept_length",
            "the same since start, but the accept_rate beside it is of the last log interval",
        ),
        ("AIPerf", "acceptance_length, token-weighted", "the same"),
        ("ATOM", "mtp_average_tokens_per_forward", "the same"),
        ("TensorRT-Edge-LLM", "acceptance rate", "the same: it calls accept length a rate"),
    ]
    emitted = emitted_length(requests)
    drafts_only = "the bonus token is not counted: one less"
    return (
        *(Definition(tool=t, field=f, value=value, why=w) for t, f, w in rows),
        Definition(
            tool="specbench",
            field="emitted_length",
            value=emitted.value if emitted else None,
            why="(output tokens - requests) / verify steps: after trimming, what speed follows",
        ),
        Definition(
            tool="SpecForge training",
            field="simulated_acc_len",
            value=mean_drafts,
            why=f"{drafts_only}; in training it is teacher-forced at every position",
        ),
        Definition(
            tool="TensorRT-LLM",
            field="TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS",
            value=mean_drafts,
            why=drafts_only,
        ),
    )


def _per_request(requests: Sequence[RequestSums], totals: LedgerTotals) -> tuple[Definition, ...]:
    lengths = totals.per_request(lambda i: 1 + totals.accepted[i] / totals.steps[i])
    each = request_accept_lengths(requests)
    return (
        Definition(
            tool="vLLM",
            field="per-request mean_acceptance_length",
            value=lengths,
            why="ours, for each request by itself",
        ),
        Definition(
            tool="AIPerf",
            field="acceptance_length",
            value=sum(each) / len(each) if each else None,
            why="mean over requests: a short request weighs as much as a long one",
        ),
    )


def _with_prefill(totals: LedgerTotals) -> tuple[Definition, ...]:
    c, v, a = totals.completion, totals.steps, totals.accepted
    rounds = sum(v) + len(v)
    return (
        *_output_per_step(totals),
        Definition(
            tool="TensorRT-LLM",
            field="trtllm-bench acceptance length",
            value=sum(c) / rounds,
            why="output tokens / (verify steps + requests): each prefill counts as an iteration",
        ),
        Definition(
            tool="TensorRT-LLM",
            field="trtllm-bench acceptance length per request",
            value=totals.per_request(lambda i: c[i] / (v[i] + 1)),
            why="the same for each request",
        ),
        Definition(
            tool="TensorRT-LLM",
            field="response avg_decoded_tokens_per_iter",
            value=totals.per_request(lambda i: c[i] / (v[i] + 1)),
            why="the same, in the response: tokens / iterations with those that draft nothing",
        ),
        Definition(
            tool="TensorRT-LLM",
            field="trtllm-bench acceptance rate",
            value=sum(a) / (totals.depth * rounds) if totals.depth else None,
            why="the prefill counts as an iteration that drafted in full and had all refused",
        ),
    )


def _output_per_step(totals: LedgerTotals) -> tuple[Definition, ...]:
    """Tools that divide output tokens by verify steps, or come close to it."""
    c, v = totals.completion, totals.steps
    pooled = sum(c) / sum(v)
    return (
        Definition(
            tool="SGLang",
            field="meta_info.spec_accept_length",
            value=totals.per_request(lambda i: c[i] / v[i]),
            why="output tokens / verify steps: counts the prefill token, and is after trimming",
        ),
        Definition(
            tool="SpecForge",
            field="bench_eagle3 accept length",
            value=pooled,
            why="pooled output tokens / verify steps: counts the prefill token of each request",
        ),
        Definition(
            tool="SpecForge",
            field="specforge benchmark accept length",
            value=totals.mean(lambda i: c[i] / v[i]),
            why="mean over requests of output tokens / verify steps, prefill token counted",
        ),
        Definition(
            tool="z-lab/dflash",
            field="benchmark accept length",
            value=totals.mean(lambda i: c[i] / v[i]),
            why="the same mean over requests, inferred from its published values",
        ),
        Definition(
            tool="InferenceX",
            field="golden acceptance length (SGLang path)",
            value=pooled,
            why="generation tokens / verify calls of SGLang's counters: prefill tokens are in it",
        ),
        Definition(
            tool="mlx-vlm",
            field="mean accepted tokens",
            value=totals.per_request(lambda i: (c[i] - 1) / v[i]),
            why="(output tokens - 1) / draft rounds of each request: after trimming",
        ),
    )


def _from_chunks(totals: LedgerTotals) -> tuple[Definition, ...]:
    """Tools that see deliveries only: a chunk is taken for a step."""
    chunks = totals.chunks
    means = [float(c.sum() / len(c)) for c in chunks] if chunks else []
    later = [float((c.sum() - 1) / (len(c) - 1)) for c in chunks if len(c) > 1] if chunks else []
    above = [value for value in later if value > 1]
    scope = sum(above) / len(above) if above else None
    return (
        Definition(
            tool="specdec_bench",
            field="Average_AL",
            value=sum(means) / len(means) if means else None,
            why="mean over requests of the mean chunk, in which the prefill's chunk is a step",
        ),
        Definition(
            tool="evalscope",
            field="decoded tokens per iteration",
            value=scope,
            why="(tokens - 1) / (chunks - 1), averaged only over requests where it exceeds 1",
        ),
        Definition(
            tool="evalscope",
            field="approximate acceptance",
            value=1 - 1 / scope if scope else None,
            why="1 - 1 / its accept length; no drafts are counted at all",
        ),
        Definition(
            tool="GuideLLM",
            field="iter_tokens_per_iteration",
            value=sum(later) / len(later) if later else None,
            why="(tokens - 1) / (iterations - 1), mean over requests",
        ),
    )
