"""From parsed flags to settings: profiles give the defaults, flags win."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specbench.collectors.gpu import DEFAULT_INTERVAL_S, LEAST_INTERVAL_S
from specbench.collectors.publish import PublishConfig
from specbench.config import Arrival, EngineConfig, LoadConfig, SpecConfig
from specbench.errors import ConfigError
from specbench.grid import Grid, parse_values
from specbench.metrics.goodput import check_latency
from specbench.sweep_spec import SweepSpec
from specbench.verification import Verification

ENGINE_FLAGS = (
    *("dtype", "device", "threads", "max_len", "kernels", "tensor_parallel", "d2t"),
    *("verification", "threshold_single", "threshold_acc"),
)
# Defaults of each profile: flags that are given win over them.
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "quick": {
        "num_steps": (0, 1, 2, 3, 5, 7),
        "topk": (1, 4),
        "num_draft_tokens": (8, 16),
        "batch_sizes": (1, 4),
        "requests": 20,
        "blocks": 10,
        "waves": 2,
    },
    "full": {
        "num_steps": (0, 1, 2, 3, 4, 5, 6, 7),
        "topk": (1, 2, 4, 8),
        "num_draft_tokens": (4, 8, 16, 32),
        "batch_sizes": (1, 2, 4, 8),
        "requests": 100,
        "blocks": 25,
        "waves": 2,
    },
}


def sweep_spec(args: argparse.Namespace) -> SweepSpec:
    """The flags of ``specbench sweep`` over the profile's defaults.

    Raises:
        ConfigError: a flag is malformed or contradicts another.
    """
    if args.server and (args.target or args.draft):
        raise ConfigError(
            "--server and --target/--draft are given together.",
            expected="An outside server brings its own models.",
        )
    _check_place(args)
    check_latency(args.slo, args.reader_rate)
    given = {
        "target": args.target,
        "draft": args.draft,
        "server": args.server,
        "baseline_server": args.baseline_server,
        "backend": args.backend,
        "model": args.model,
        "workloads": tuple(args.workload) if args.workload else None,
        "num_steps": _values(args.num_steps, "--num-steps", 0),
        "topk": _values(args.topk, "--topk", 1),
        "num_draft_tokens": _values(args.num_draft_tokens, "--num-draft-tokens", 1),
        "batch_sizes": _values(args.batch_size, "--batch-size", 1),
        "temperatures": _temperatures(args.temperature),
        "requests": args.requests,
        "blocks": args.blocks,
        "max_tokens": args.max_tokens,
        "seed": args.seed,
        "capture_ids": _values(args.capture_ids, "--capture-ids", 0),
        "capture_default": args.capture_default,
        "as_engine": args.as_engine,
        "noise_floor": args.noise_floor,
        **{name: getattr(args, name) for name in ("slo", "reader_rate")},
        "waves": 0 if args.blocks else None,  # blocks that are asked for hold at every batch size
    }
    chosen = dict(PROFILES[args.profile or "quick"])
    chosen |= {key: value for key, value in given.items() if value is not None}
    _check_grid(given, chosen)
    _check_drafting(args, chosen["num_steps"])
    load = LoadConfig(**_load_flags(args))
    if not args.blocks:  # a block begins with nothing queued, as an open loop would not
        timed = load.open_loop or load.arrival is Arrival.TRACE
        chosen["blocks"] = 1 if timed else min(chosen["blocks"], chosen["requests"])
    engine = engine_config(args, max_batch_size=max(chosen["batch_sizes"]))
    return SweepSpec(**chosen, load=load, engine=engine)


def _check_drafting(args: argparse.Namespace, num_steps: Sequence[int]) -> None:
    """Refuse models or servers that do not fit whether anything is drafted."""
    if args.baseline_server is not None and not any(num_steps):
        raise ConfigError(
            "--baseline-server with --num-steps 0: nothing is measured but plain decoding.",
            todo="Give --num-steps over 0, or leave --baseline-server out.",
        )
    if args.target and not args.draft and any(num_steps):
        raise ConfigError(
            f"--target {args.target} is given without --draft, but num_steps={max(num_steps)} "
            "needs one.",
            todo="Give --draft, or --num-steps 0 for plain decoding alone.",
        )


def _check_grid(given: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """Refuse ``--topk`` and ``--num-draft-tokens`` that set nothing at any point of the grid."""
    steps, topk, nodes = (chosen[name] for name in ("num_steps", "topk", "num_draft_tokens"))
    asked = [name for name in ("topk", "num_draft_tokens") if given[name] not in (None, (1,))]
    if asked and not any(steps):
        flags = ", ".join(f"--{name.replace('_', '-')} {_listed(given[name])}" for name in asked)
        raise ConfigError(
            f"{flags}: has no meaning with --num-steps 0, which drafts nothing.",
            todo="Leave it out, or give --num-steps over 0.",
        )
    chains = sorted(k + 1 for k in steps if k)
    if "num_draft_tokens" not in asked or max(topk) > 1 or given["as_engine"] is not None:
        return
    if sorted(nodes) != chains:
        raise ConfigError(
            f"--num-draft-tokens {_listed(nodes)} with --topk 1 and --num-steps {_listed(steps)}: "
            f"a chain takes num_steps + 1 tokens, the root counted, so here {_listed(chains)}.",
            todo="Leave --num-draft-tokens out, give a --topk over 1 for trees, or --as-engine to "
            "see what an engine would make of it.",
        )


def grid_notes(args: argparse.Namespace, spec: SweepSpec, grid: Grid) -> tuple[str, ...]:
    """What of the flags does not hold at every point, a sentence each."""
    notes = list(grid.notes)
    if args.num_draft_tokens is not None and spec.as_engine is None:
        chains = [point.point_id for point in grid.points if point.spec.is_chain]
        if chains and max(spec.topk) > 1:
            notes.append(
                f"--num-draft-tokens {_listed(spec.num_draft_tokens)} is for trees; the chains "
                f"({', '.join(chains)}) take num_steps + 1 each"
            )
    return tuple(notes)


def _listed(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _check_place(args: argparse.Namespace) -> None:
    """Refuse flags that would say nothing where the sweep runs (here, or on a server), or twice."""
    if args.capture_ids and args.capture_default:
        raise ConfigError(
            "--capture-ids and --capture-default are given together.", expected="One of them."
        )
    beside = ("backend", "model", "baseline_server")
    of_server = [f"--{n.replace('_', '-')}" for n in beside if getattr(args, n) is not None]
    if args.server is None and of_server:
        raise ConfigError(
            f"{of_server[0]} is given without --server.", expected="It concerns an outside server."
        )
    names = ("capture_ids", "capture_default", *ENGINE_FLAGS)
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None]
    if args.server is not None and given:
        raise ConfigError(
            f"{', '.join(given)} with --server.",
            expected="These set the engine in this process; a server has its own.",
        )


def _load_flags(args: argparse.Namespace) -> dict[str, Any]:
    if args.arrival == Arrival.TRACE and args.request_rate is not None:
        raise ConfigError(
            "--arrival trace and --request-rate are given together.",
            expected="A timed trace brings its own times.",
        )
    shaped = args.burstiness or args.arrival not in (None, Arrival.TRACE)
    if args.request_rate is None and shaped:
        raise ConfigError(
            "--arrival or --burstiness is given without --request-rate.",
            expected="They shape an open loop.",
            todo="Give --request-rate, or leave them out.",
        )
    flags = {
        "request_rate": args.request_rate,
        "arrival": Arrival(args.arrival) if args.arrival else None,
        "burstiness": args.burstiness,
        "warmup_requests": args.warmup,
        "timeout_s": args.timeout,
        "seed": args.seed,
    }
    return {key: value for key, value in flags.items() if value is not None}


def engine_config(args: argparse.Namespace, *, max_batch_size: int) -> EngineConfig:
    """The engine's settings from the model flags."""
    flags = {name: getattr(args, name) for name in ENGINE_FLAGS}
    given = {key: value for key, value in flags.items() if value is not None}
    if args.verification is not None:
        given["verification"] = Verification(args.verification)
    return EngineConfig(max_batch_size=max_batch_size, **given)


def gpu_interval_s(args: argparse.Namespace) -> float:
    """``--gpu-interval`` in seconds; 0 samples nothing.

    Raises:
        ConfigError: below 20 ms, where reading would disturb what is measured.
    """
    interval_s: float = DEFAULT_INTERVAL_S if args.gpu_interval is None else args.gpu_interval
    if interval_s != 0 and not LEAST_INTERVAL_S <= interval_s < math.inf:
        raise ConfigError(
            f"--gpu-interval {interval_s:g} is out of range.",
            expected=f"At least {LEAST_INTERVAL_S:g} s, or 0 to leave GPUs alone.",
        )
    return interval_s


def publish_config(args: argparse.Namespace, api_key: str | None) -> PublishConfig:
    """The ``--metrics-*`` flags; raises ConfigError when one is malformed."""
    return PublishConfig(
        listen=args.metrics_port,
        push=args.metrics_push,
        linger_s=args.metrics_linger,
        api_key=api_key,
    )


def _values(text: str | None, flag: str, least: int) -> tuple[int, ...] | None:
    return None if text is None else parse_values(text, flag=flag, least=least)


def _temperatures(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError(
            f"--temperature: {text!r} is not a list of numbers.", expected="For example 0,0.7,1."
        ) from None


def point(text: str, flag: str) -> SpecConfig:
    """Read ``K,B,N`` as one point.

    Raises:
        ConfigError: not three whole numbers, or an illegal point.
    """
    try:
        num_steps, topk, num_draft_tokens = (int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"{flag}: {text!r} is not a point.",
            expected="num_steps,topk,num_draft_tokens, for example 3,4,16.",
        ) from None
    return SpecConfig(num_steps=num_steps, topk=topk, num_draft_tokens=num_draft_tokens)


def serve_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The flags of ``specbench serve`` that were given, by the keys of its config file.

    Raises:
        ConfigError: ``--capture-ids`` is malformed.
    """
    tables = {
        "": ("host", "port", "batch_size", "log_level", "served_model_name"),
        "models": ("target", "draft", "capture_default"),
        "engine": (*ENGINE_FLAGS, "prefill_chunk", "prefix_reuse"),
        "point": ("num_steps", "topk", "num_draft_tokens", "as_engine"),
    }
    given = {
        table: {name: getattr(args, name) for name in names if getattr(args, name) is not None}
        for table, names in tables.items()
    }
    if args.capture_ids is not None:
        given["models"]["capture_ids"] = _values(args.capture_ids, "--capture-ids", 0)
    top = given.pop("")
    return top | {table: values for table, values in given.items() if values}


def check_alone(args: argparse.Namespace, name: str) -> None:
    """Refuse flags beside one that makes them mean nothing.

    Raises:
        ConfigError: names them.
    """
    aside = {"command", "command_line", "run", name}
    given = [key for key, value in vars(args).items() if value not in (None, False)]
    if others := [f"--{key.replace('_', '-')}" for key in given if key not in aside]:
        raise ConfigError(
            f"{', '.join(others)}: has no meaning with --{name}.", todo="Leave it out."
        )


def any_sweep_flag(args: argparse.Namespace) -> bool:
    """True when a flag other than those of output was given to ``specbench sweep``."""
    aside = {"command", "command_line", "run", "out", "resume", "explain", "gpu_interval", "live"}
    aside |= {"metrics_port", "metrics_linger", "metrics_push", "grafana"}
    return any(value is not None for key, value in vars(args).items() if key not in aside)
