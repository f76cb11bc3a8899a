"""The live board: what a served engine or a running sweep does now."""

from __future__ import annotations

from specbench.collectors import catalogue as cat
from specbench.dashboards import promql as q
from specbench.dashboards.board import Row, board, choice, from_series
from specbench.dashboards.gpu import gpu_rows
from specbench.dashboards.panels import Json, Query, bars, heatmap, timeseries
from specbench.dashboards.promql import Scope, select

NOW = Scope()
WINDOW = Scope(span="$window")
HERE = 'instance=~"$instance"'
POINT = "{{instance}} {{point}}"


def live_run() -> Json:
    """Accept length, speed, step time, latency, queue, KV, GPU and energy over time."""
    variables = [
        from_series("instance", "instance", cat.RUN_INFO, text="Instance", several=True),
        from_series(
            "point",
            "point",
            cat.POINT_INFO,
            text="Point",
            several=True,
            within='{instance=~"$instance"}',
        ),
        choice("window", ("1m", "5m", "15m", "1h", "6h"), chosen="5m", text="Window of speedup"),
    ]
    rows = [
        Row(heading="Acceptance", panels=[(_accept_length(), 12), (_speedup(), 12)]),
        Row(panels=[(_survival(), 8), (_survival_over_time(), 8), (_accepted(), 8)]),
        Row(heading="Speed", panels=[(_tokens(), 8), (_break_even(), 8), (_parts(), 8)]),
        Row(heading="Latency", panels=[(_ttft(), 8), (_tpot(), 8), (_gap(), 8)]),
        Row(heading="Load", panels=[(make(), 6) for make in (_queue, _kv, _outcomes, _looping)]),
        *gpu_rows(WINDOW),
    ]
    return board(
        "specbench-live",
        "specbench / live run",
        "A served engine or a running sweep, as it runs. Definitions: docs/glossary.md.",
        rows,
        variables,
        refresh="10s",
        since="now-30m",
    )


def _accept_length() -> Json:
    return timeseries(
        "Accept length",
        "τ = 1 + accepted drafts ÷ verify steps, pooled over steps; the bonus token is counted, "
        "the prefill token is not, before trimming. Between 1 and num_steps + 1.",
        [Query(expr=q.accept_length(NOW), legend=POINT)],
        unit="none",
        least=1,
        decimals=2,
    )


def _speedup() -> Json:
    return timeseries(
        "Speedup over the baseline",
        "Emitted tokens per verify step ÷ batch step time, over the same of the baseline arm of "
        "the same workload, batch size and temperature, both within the chosen window. Under 1 "
        "speculation loses. No line where no baseline ran in the window.",
        [Query(expr=q.speedup(WINDOW), legend=POINT)],
        unit="none",
        line_at=1,
        decimals=2,
    )


def _survival() -> Json:
    return bars(
        "Survival by position",
        "P(a ≥ i): verify steps that accepted a draft at position i ÷ all verify steps of the "
        "chosen points, within the window. For a tree, position is depth.",
        [
            Query(
                expr=f"sort_desc({q.survival(WINDOW, by=('job', 'instance'))})",
                legend="{{instance}} position {{position}}",
                instant=True,
            )
        ],
        unit="percentunit",
        most=1,
    )


def _survival_over_time() -> Json:
    return timeseries(
        "Survival by position over time",
        "P(a ≥ i) for each position i, all chosen points together.",
        [
            Query(
                expr=q.survival(NOW, by=("job", "instance")),
                legend="{{instance}} position {{position}}",
            )
        ],
        unit="percentunit",
    )


def _accepted() -> Json:
    spec = NOW.arm(q.SPEC)
    return heatmap(
        "Accepted drafts per verify step",
        "How many verify steps accepted so many drafts, in each interval. The bonus token is not "
        "counted. Two humps are two kinds of text; a mean hides them.",
        Query(expr=spec.by(("le",), cat.ACCEPTED, part="_bucket"), legend="{{le}}"),
        unit="none",
    )


def _tokens() -> Json:
    return timeseries(
        "Output tokens per second",
        "Tokens given to users, those of prefill included, per second of wall time.",
        [Query(expr=q.per_second(NOW, cat.OUTPUT), legend=POINT)],
        unit="short",
    )


def _break_even() -> Json:
    spec = WINDOW.arm(q.SPEC)
    return timeseries(
        "Emitted accept length against break-even",
        "Emitted accept length: emitted tokens ÷ verify steps. Break-even: speculative step time "
        "÷ plain step time at the same batch. Where the first is under the second, speculation "
        "loses.",
        [
            Query(expr=q.tokens_per_step(spec), legend=f"{POINT} emitted"),
            Query(expr=q.break_even(WINDOW), legend=f"{POINT} break-even"),
        ],
        unit="none",
        decimals=2,
    )


def _parts() -> Json:
    return timeseries(
        "Batch step time by part",
        "Mean wall time of draft, extend, verify and other for one batch step of the chosen "
        "points; stacked, they are the step time.",
        [
            Query(
                expr=q.part_seconds(NOW, by=("job", "instance", "arm")),
                legend="{{instance}} {{arm}} {{part}}",
            )
        ],
        unit="s",
        stacked=True,
    )


def _latency(title: str, about: str, series: cat.Series) -> Json:
    return timeseries(
        title,
        f"{about} Median and 99th percentile, interpolated within buckets.",
        [
            Query(expr=q.quantile(0.5, NOW, series), legend=f"{POINT} p50"),
            Query(expr=q.quantile(0.99, NOW, series), legend=f"{POINT} p99"),
        ],
        unit="s",
    )


def _ttft() -> Json:
    return _latency("TTFT", "First non-empty delivery − send.", cat.TTFT_SECONDS)


def _tpot() -> Json:
    return _latency(
        "TPOT",
        "(Last − first delivery) ÷ (tokens − tokens of the first chunk), per request.",
        cat.TPOT_SECONDS,
    )


def _gap() -> Json:
    return _latency(
        "Chunk gap",
        "Time between deliveries; a delivery holds as many tokens as its step emitted.",
        cat.GAP_SECONDS,
    )


def _queue() -> Json:
    return timeseries(
        "Requests running and queued",
        "What the engine runs now and what waits for a place.",
        [
            Query(expr=select(cat.RUNNING, HERE), legend="{{instance}} running"),
            Query(expr=select(cat.QUEUED, HERE), legend="{{instance}} queued"),
        ],
        unit="none",
    )


def _kv() -> Json:
    used, slots = select(cat.KV_USED, HERE), select(cat.KV_SLOTS, HERE)
    return timeseries(
        "KV slots in use",
        "Used ÷ all slots of the cache.",
        [Query(expr=q.ratio(used, slots), legend="{{instance}}")],
        unit="percentunit",
    )


def _outcomes() -> Json:
    by = ("job", "instance", "outcome")
    return timeseries(
        "Requests that ended",
        "By outcome, per second. Errors and cancelled requests are in no accept length.",
        [Query(expr=q.per_second(NOW, cat.REQUESTS, by), legend="{{instance}} {{outcome}}")],
        unit="reqps",
    )


def _looping() -> Json:
    looping, ended = (WINDOW.by(q.ARM, series) for series in (cat.LOOPING, cat.REQUESTS))
    return timeseries(
        "Looping outputs",
        "Share of ended outputs that repeat their own 4-grams, within the window. Their accept "
        "length flatters the draft.",
        [Query(expr=q.ratio(looping, ended), legend=POINT)],
        unit="percentunit",
    )
