"""The compare board: two runs over each other, the second shifted to begin with the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from specbench.collectors import catalogue as cat
from specbench.dashboards import promql as q
from specbench.dashboards.board import Row, board, choice, from_series, typed
from specbench.dashboards.panels import Json, Query, table, timeseries
from specbench.dashboards.promql import Scope

A = Scope(matchers=(), points=('point=~"$point"',), run="$run_a")
B = replace(A, run="$run_b", offset="$shift")
SHAPE = (*q.POINT, "arm")


def compare() -> Json:
    """Accept length, speed, step time and latency of runs A and B, and a table of both."""
    variables = [
        from_series("run_a", "run_id", cat.RUN_INFO, text="Run A", several=False),
        from_series("run_b", "run_id", cat.RUN_INFO, text="Run B", several=False),
        from_series("point", "point", cat.POINT_INFO, text="Point", several=True),
        typed("shift", "1ms", text="Show B from so long ago (1ms: now; -2h: later)"),
        choice("resolution", ("1s", "5s", "15s", "1m"), chosen="5s", text="Scrape interval"),
    ]
    rows = [
        Row(panels=[(_both(*what), 12) for what in _FIGURES[:2]]),
        Row(panels=[(_both(*what), 12) for what in _FIGURES[2:4]]),
        Row(panels=[(_both(*what), 12) for what in _FIGURES[4:]]),
        Row(heading="Totals of both runs", height=12, panels=[(_totals(), 24)]),
    ]
    return board(
        "specbench-compare",
        "specbench / compare",
        "Two runs over each other. Run B is shown shifted in time, so that both can begin at "
        "once. Definitions: docs/glossary.md.",
        rows,
        variables,
        refresh="",
        since="now-24h",
        annotation_tags=("run:$run_a", "run:$run_b"),
    )


_FIGURES: tuple[tuple[str, str, Callable[[Scope], str], str], ...] = (
    (
        "Accept length",
        "τ = 1 + accepted drafts ÷ verify steps, before trimming.",
        q.accept_length,
        "none",
    ),
    (
        "Emitted tokens per verify step",
        "What speed follows: after trimming.",
        lambda scope: q.tokens_per_step(scope.arm(q.SPEC)),
        "none",
    ),
    ("Batch step time", "Mean wall time of a batch step.", q.step_seconds, "s"),
    (
        "Output tokens per second",
        "Tokens given to users, those of prefill included.",
        lambda scope: q.per_second(scope, cat.OUTPUT),
        "short",
    ),
    (
        "TTFT, 99th percentile",
        "First non-empty delivery − send.",
        lambda scope: q.quantile(0.99, scope, cat.TTFT_SECONDS),
        "s",
    ),
    (
        "TPOT, median",
        "(Last − first delivery) ÷ (tokens − tokens of the first chunk).",
        lambda scope: q.quantile(0.5, scope, cat.TPOT_SECONDS),
        "s",
    ),
)


def _both(title: str, about: str, figure: Callable[[Scope], str], unit: str) -> Json:
    queries = [
        Query(expr=scope.tag(figure(scope)), legend=f"{name} {{{{run_id}}}} {{{{point}}}}")
        for name, scope in (("A", A), ("B", B))
    ]
    return timeseries(title, about, queries, unit=unit, least=None)


def _totals() -> Json:
    """Joined by what the points are, not by their labels: B may have other labels."""
    total = {
        name: replace(scope, take="counter", offset="") for name, scope in (("A", A), ("B", B))
    }
    figures: tuple[tuple[str, Callable[[Scope], str], tuple[str, int]], ...] = (
        ("Verify steps", lambda scope: scope.by(q.ARM, cat.VERIFY_STEPS), ("short", 0)),
        ("Accept length", q.accept_length, ("none", 2)),
        ("Step time", q.step_seconds, ("s", 2)),
        ("TPOT", lambda scope: q.mean(scope, cat.TPOT_SECONDS), ("s", 2)),
        ("Decode tok/s", q.decode_speed, ("none", 1)),
    )
    columns = {
        f"{title} {name}": (_by_shape(scope, figure(scope)), unit)
        for title, figure, unit in figures
        for name, scope in total.items()
    }
    names = {f"Value #{chr(ord('A') + i)}": name for i, name in enumerate(columns)}
    organise = {
        "id": "organize",
        "options": {
            "excludeByName": {"Time": True},
            "indexByName": {name: i for i, name in enumerate((*SHAPE, *names))},
            "renameByName": names,
        },
    }
    return table(
        "Points of A and B",
        "Accept length: τ before trimming. Step time: mean of a batch step. TPOT: mean over "
        "requests. Decode tok/s: emitted tokens ÷ time of batch steps. Totals of each run since "
        "its process began, in the shown time; rows are points that are the same in both.",
        [Query(expr=expr, table=True) for expr, _ in columns.values()],
        transformations=[{"id": "merge", "options": {}}, organise],
        units={name: unit for name, (_, unit) in columns.items()},
    )


def _by_shape(scope: Scope, expr: str) -> str:
    return f"max by ({', '.join(SHAPE)}) ({scope.at_end(q.described(scope, expr))})"
