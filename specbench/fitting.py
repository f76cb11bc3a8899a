"""What a sweep is asked, held against what is there: its workloads, and what a server runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from specbench.backends.base import Backend, FixesPoints
from specbench.checkpoint.folder import require_folder
from specbench.config import Arrival, SpecConfig
from specbench.errors import ConfigError, WorkloadError
from specbench.grid import Grid
from specbench.request import SamplingParams
from specbench.run import check_wording
from specbench.sweep_spec import SweepSpec
from specbench.workload import Workload


def with_workloads(spec: SweepSpec, workloads: Sequence[Workload]) -> SweepSpec:
    """``spec`` for workloads that were read, checked against each other before anything is begun.

    ``--arrival trace`` gets the mean rate of its timed trace.

    Raises:
        ConfigError: the server's protocol has no words for a workload, or there is another one
            beside a timed trace.
        WorkloadError: a trace has no arrivals, or all of them are at once.
    """
    check_wording(spec.backend, workloads)
    if spec.load.arrival is not Arrival.TRACE:
        return spec
    if len(workloads) > 1:
        raise ConfigError(
            f"--arrival trace with {len(workloads)} workloads.", expected="One timed trace."
        )
    timed = workloads[0].schedule(SamplingParams())[: spec.requests]
    span_s = timed[-1][0]
    if not span_s > 0:
        raise WorkloadError(
            f"{workloads[0].name}: the first {len(timed)} requests arrive all at once.",
            todo="Ask for more (--requests), or leave --arrival out.",
        )
    load = dataclasses.replace(spec.load, request_rate=(len(timed) - 1) / span_s)
    return dataclasses.replace(spec, load=load)


def check_models(spec: SweepSpec) -> None:
    """Refuse a target or draft that is no folder, before anything is begun.

    Raises:
        CheckpointError: names it, and how a model of a hub becomes a folder.
    """
    if spec.target is None:
        return  # the shipped pair, or a server; a draft alone is refused for being alone
    for folder in filter(None, (spec.target, spec.draft)):
        require_folder(Path(folder))


def arrival_notes(spec: SweepSpec, workloads: Sequence[Workload]) -> tuple[str, ...]:
    """What to say of arrivals: an open loop in one piece or in blocks, a trace's times not kept."""
    if spec.load.arrival is not Arrival.TRACE:
        left_out = tuple(
            f"{workload.name}: its arrival times are left out (--arrival trace keeps them)"
            for workload in workloads
            if workload.timed
        )
        return (*_open_loop_notes(spec), *left_out)
    if max(map(spec.blocks_at, spec.batch_sizes)) == 1:
        return (
            f"{workloads[0].name}: each arm goes through it in one piece, one arm after the other; "
            "--blocks N lets arms take turns, and begins each of N pieces with nothing queued",
        )
    return (
        f"{workloads[0].name}: each block begins with an arrival of its own, whatever was queued "
        "before it; without --blocks the trace stays in one piece",
    )


def _open_loop_notes(spec: SweepSpec) -> tuple[str, ...]:
    """Of a rate of arrivals: a queue is lost between blocks, turns of the arms without them."""
    if not spec.load.open_loop:
        return ()
    blocks = max(map(spec.blocks_at, spec.batch_sizes))
    if blocks == 1:
        return (
            "--request-rate: each arm gets its requests in one piece, so that queues build up, one "
            "arm after the other; --blocks N lets arms take turns, and begins each of N pieces "
            "with nothing queued",
        )
    least, most = spec.requests // blocks, -(-spec.requests // blocks)
    size = f"{least}" if least == most else f"{least} or {most}"
    return (
        f"--request-rate in {blocks} blocks of {size} requests an arm: each block begins with "
        "nothing queued, so that queues hardly build up in short ones; --blocks 1 keeps an arm in "
        "one piece",
    )


def fit_grid(spec: SweepSpec, grid: Grid, backend: Backend, tell: Callable[[str], None]) -> Grid:
    """What of ``grid`` the opened ``backend`` can run; ``tell`` hears what is left out and why.

    A server that fixes its point at launch runs that one alone: what else was asked is dropped
    with its reason, plain decoding as well.

    Raises:
        ConfigError: it runs nothing that was asked, or no one can tell which point it runs.
    """
    if not isinstance(backend, FixesPoints):
        return grid
    refused = backend.refused([point.spec for point in grid.points])
    fitted = grid.less(refused)
    plain = SpecConfig.baseline()
    others = [reason for point, reason in refused.items() if point != plain]
    if not any(0 in spec.num_steps or not point.spec.is_baseline for point in fitted.points):
        raise ConfigError(
            f"No point that was asked can be measured: {others[0] if others else refused[plain]}.",
            todo="Ask for the point that the server runs, or launch it with another.",
        )
    if plain in refused and spec.noise_floor:
        raise ConfigError(
            f"--noise-floor measures plain decoding twice, but {refused[plain]}.",
            todo="Give --baseline-server URL, or leave --noise-floor out.",
        )
    if plain in refused:
        tell(
            f"no plain decoding is measured, so there will be no speedup: {refused[plain]}; name "
            "one that does not speculate by --baseline-server"
        )
    if others:
        tell(f"left out {len(others)} of the points asked: {others[0]}")
    return fitted
