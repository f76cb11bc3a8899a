"""The sweep board: every point of one run so far, and how far the run is."""

from __future__ import annotations

from specbench.collectors import catalogue as cat
from specbench.dashboards import promql as q
from specbench.dashboards.board import Row, board, choice, from_expr, from_series
from specbench.dashboards.panels import Json, Query, stat, table, timeseries
from specbench.dashboards.promql import Scope

SO_FAR = Scope(take="counter", matchers=(), points=(), run="$run")
CELL = ('workload="$workload"', 'batch_size="$batch_size"', 'temperature="$temperature"')
SHAPE = ("num_steps", "topk", "num_draft_tokens")
RUN = "Totals of the chosen run since its process began, in the shown time."


def sweep() -> Json:
    """Heat maps by point, the best so far, progress, and a table of all points."""
    variables = [
        from_series("run", "run_id", cat.RUN_INFO, text="Run", several=False),
        *(
            from_expr(name, name, _so_far(q.select(cat.POINT_INFO)), text=text)
            for name, text in (
                ("workload", "Workload"),
                ("batch_size", "Batch size"),
                ("temperature", "Temperature"),
            )
        ),
        choice("resolution", ("1s", "5s", "15s", "1m"), chosen="5s", text="Scrape interval"),
    ]
    rows = [
        Row(height=4, panels=[(_progress(), 4), (_left(), 4), (_best(), 8), (_longest(), 8)]),
        Row(
            heading="Batch $batch_size, temperature $temperature, workload $workload",
            height=9,
            panels=[(_speedups(), 12), (_lengths(), 12)],
        ),
        Row(heading="All points of the run", height=12, panels=[(_points(), 24)]),
        Row(panels=[(_blocks(), 12), (_speed_so_far(), 12)]),
    ]
    return board(
        "specbench-sweep",
        "specbench / sweep",
        "Every point of a sweep so far. Choose the run above, and Prometheus' scrape interval. "
        "Definitions: docs/glossary.md.",
        rows,
        variables,
        refresh="30s",
        since="now-6h",
        annotation_tags=("run:$run",),
    )


def _so_far(expr: str) -> str:
    return SO_FAR.at_end(expr)


def _progress() -> Json:
    share = q.ratio(q.select(cat.BLOCKS_DONE), q.select(cat.BLOCKS))
    return stat(
        "Blocks saved",
        "Blocks on disk ÷ blocks of the sweep.",
        [Query(expr=_so_far(share), instant=True)],
        unit="percentunit",
        decimals=0,
    )


def _left() -> Json:
    done, planned = q.select(cat.BLOCKS_DONE), q.select(cat.BLOCKS)
    rest = f"({planned} - {done}) / (deriv({done}[15m]) > 0)"
    return stat(
        "Time left",
        "Blocks that are not saved yet ÷ blocks saved per second in the last quarter of an hour. "
        "Empty when the run is over.",
        [Query(expr=SO_FAR.tag(rest), instant=True)],
        unit="s",
        decimals=0,
    )


def _best() -> Json:
    return stat(
        "Best speedup so far",
        "The point with the highest speedup of all cells: tokens per step ÷ step time, over the "
        f"baseline of the same workload, batch size and temperature. {RUN}",
        [Query(expr=f"topk(1, {_so_far(q.speedup(SO_FAR))})", legend="{{point}}", instant=True)],
        unit="none",
        steps=(("red", None), ("green", 1)),
        named=True,
        decimals=2,
    )


def _longest() -> Json:
    return stat(
        "Longest accept length so far",
        f"The point with the highest τ, which need not be the fastest. {RUN}",
        [
            Query(
                expr=f"topk(1, {_so_far(q.accept_length(SO_FAR))})",
                legend="{{point}}",
                instant=True,
            )
        ],
        unit="none",
        named=True,
        decimals=2,
    )


def _matrix(title: str, about: str, expr: str) -> Json:
    """num_steps × topk down, num_draft_tokens across; the cell of the three variables."""
    by = ", ".join(SHAPE)
    expr = f'label_join(max by ({by}) ({_so_far(expr)}), "tree", " × ", "num_steps", "topk")'
    matrix = {
        "id": "groupingToMatrix",
        "options": {
            "columnField": "num_draft_tokens",
            "rowField": "tree",
            "valueField": "Value",
            "emptyValue": "null",
        },
    }
    return table(
        title,
        f"{about} Rows: num_steps × topk; columns: num_draft_tokens, root counted. {RUN}",
        [Query(expr=expr, table=True)],
        transformations=[matrix],
        units={"/^[0-9]+$/": ("none", 2)},
        coloured=["/^[0-9]+$/"],
    )


def _in_cell(expr: str) -> str:
    """``expr`` (by ARM) of the chosen workload, batch size and temperature."""
    return q.described(SO_FAR, expr, *CELL, keep=SHAPE)


def _bare(expr: str) -> str:
    """``expr`` by ARM, without the labels that ``described`` gives it again."""
    return f"sum by ({', '.join(q.ARM)}) ({expr})"


def _speedups() -> Json:
    return _matrix(
        "Speedup by point",
        "Tokens per step ÷ step time, over the same of the baseline arm. Under 1 it loses.",
        _in_cell(_bare(q.speedup(SO_FAR))),
    )


def _lengths() -> Json:
    return _matrix(
        "Accept length by point",
        "τ = 1 + accepted drafts ÷ verify steps, before trimming.",
        _in_cell(q.accept_length(SO_FAR)),
    )


def _points() -> Json:
    columns = {
        "Requests": (SO_FAR.by(q.ARM, cat.REQUESTS), ("none", 0)),
        "Verify steps": (SO_FAR.by(q.ARM, cat.VERIFY_STEPS), ("short", 0)),
        "Accept length": (q.accept_length(SO_FAR), ("none", 2)),
        "Step time": (q.step_seconds(SO_FAR), ("s", 2)),
        "TPOT": (q.mean(SO_FAR, cat.TPOT_SECONDS), ("s", 2)),
        "Decode tok/s": (q.decode_speed(SO_FAR), ("none", 1)),
        "Break-even": (_bare(q.break_even(SO_FAR)), ("none", 2)),
        "Speedup": (_bare(q.speedup(SO_FAR)), ("none", 2)),
    }
    names = {f"Value #{chr(ord('A') + i)}": name for i, name in enumerate(columns)}
    organise = {
        "id": "organize",
        "options": {
            "excludeByName": {"Time": True, "job": True, "instance": True, "run_id": True},
            "indexByName": {name: i for i, name in enumerate(("point", "arm", *q.POINT, *names))},
            "renameByName": names,
        },
    }
    return table(
        "Points",
        "Accept length: τ before trimming. Step time: mean of a batch step. TPOT: mean over "
        "requests. Decode tok/s: emitted tokens ÷ time of batch steps. Break-even: step time ÷ "
        "that of the baseline of the same cell; with an emitted accept length under it, "
        f"speculation loses. {RUN}",
        [
            Query(expr=_so_far(q.described(SO_FAR, expr)), table=True)
            for expr, _ in columns.values()
        ],
        transformations=[{"id": "merge", "options": {}}, organise],
        units={name: unit for name, (_, unit) in columns.items()},
        coloured=["Accept length", "Speedup"],
        sort_by="Speedup",
    )


def _blocks() -> Json:
    return timeseries(
        "Blocks saved over time",
        "Blocks on disk, and all blocks of the sweep.",
        [
            Query(expr=SO_FAR.tag(q.select(cat.BLOCKS_DONE)), legend="saved"),
            Query(expr=SO_FAR.tag(q.select(cat.BLOCKS)), legend="all"),
        ],
        unit="none",
    )


def _speed_so_far() -> Json:
    rate = Scope(matchers=(), points=())
    return timeseries(
        "Output tokens per second by point",
        "Tokens given to users per second of wall time; arms take turns block by block.",
        [Query(expr=SO_FAR.tag(q.per_second(rate, cat.OUTPUT)), legend="{{point}}")],
        unit="short",
    )
