"""The composition root: a backend, a workload's requests and a point become one ArmRun.

The one place that knows every kind of backend; torch is imported only when the in-process
engine is asked for.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from specbench import __version__, demo
from specbench.backends.base import Backend, BackendFacts, Event, SeesTraffic, TakesOnTrust
from specbench.backends.openai import OpenAIBackend
from specbench.backends.remote import RemoteBackend
from specbench.backends.sglang import SGLangBackend
from specbench.backends.two_servers import TwoServers
from specbench.collectors.live import EngineState, Recorder
from specbench.config import EngineConfig, LoadConfig, SpecConfig
from specbench.errors import ConfigError
from specbench.estimate import Caveat, Severity
from specbench.load.generator import run_load
from specbench.load.lag import ClientLag
from specbench.request import Request
from specbench.trace import ArmRun, Finish, RequestTrace
from specbench.workload import Workload

MOST_LAG_NS = 10_000_000


class Watch(Protocol):
    """Sees a block while it runs."""

    def event(self, request: Request, event: Event) -> None:
        """An event of a measured request has arrived."""
        ...

    def trace(self, trace: RequestTrace) -> None:
        """A request has ended, warm-up included (it is marked)."""
        ...


def inprocess_backend(
    target: Path,
    draft: Path | None,
    engine: EngineConfig,
    *,
    capture_ids: tuple[int, ...] | None = None,
    capture_default: bool = False,
) -> Backend:
    """The in-process engine on a model pair; nothing is loaded before ``open``.

    Raises:
        ConfigError: the ``engine`` extra is not installed.
    """
    try:
        from specbench.backends.inprocess import InProcessBackend
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The in-process engine needs {error.name}, which is not installed.",
            todo="Run pip install '.[engine]' in a clone of specbench, or give --server URL to "
            "measure an outside server.",
        ) from error
    return InProcessBackend(
        target, draft, engine, capture_ids=capture_ids, capture_default=capture_default
    )


def pair_backend(
    target: str | None,
    draft: str | None,
    engine: EngineConfig,
    capture_ids: tuple[int, ...] | None,
    capture_default: bool | None,
) -> Backend:
    """The engine on the given pair, or on the shipped one when neither folder is given.

    Raises:
        ConfigError: a draft without a target, or as in ``inprocess_backend``.
    """
    if target is None and draft is not None:
        raise ConfigError("--draft is given without --target.", todo="Give both, or neither.")
    shipped = target is None
    return inprocess_backend(
        demo.TARGET if target is None else Path(target),
        demo.DRAFT if shipped else (None if draft is None else Path(draft)),
        engine,
        capture_ids=capture_ids,
        capture_default=bool(capture_default),
    )


def server_backend(
    server: str,
    baseline_server: str | None,
    kind: str,
    *,
    api_key: str | None,
    model: str | None = None,
) -> Backend:
    """A backend for ``server``, with plain decoding sent to ``baseline_server`` where it is given.

    Raises:
        ConfigError: as in ``remote_backend``, or both are the same.
    """
    first = remote_backend(server, kind, api_key=api_key, model=model)
    if baseline_server is None:
        return first
    return TwoServers(first, remote_backend(baseline_server, kind, api_key=api_key, model=model))


def remote_backend(
    server: str, kind: str, *, api_key: str | None, model: str | None = None
) -> RemoteBackend:
    """A backend for the server at ``server``; ``kind`` is auto, openai or sglang.

    Raises:
        ConfigError: ``kind`` is unknown, has no word for ``model``, or the address is not an
            http(s) URL.
    """
    if kind in ("auto", "openai"):
        return OpenAIBackend(server, model=model, api_key=api_key)
    if kind == "sglang":
        if model is not None:
            raise ConfigError(
                f"--model {model} with --backend sglang.",
                expected="SGLang's /generate names no model.",
                todo="Use --backend openai, or leave --model out.",
            )
        return SGLangBackend(server, api_key=api_key)
    raise ConfigError(f"backend={kind!r} is unknown.", expected="auto, openai or sglang.")


def check_wording(kind: str, workloads: Sequence[Workload]) -> None:
    """Refuse prompts that the protocol ``kind`` has no words for, before anything is begun.

    Raises:
        ConfigError: messages are to go to SGLang's ``/generate``, which takes plain text.
    """
    if kind != "sglang":
        return
    for workload in workloads:
        if not all(prompt.raw for prompt in workload.prompts):
            raise ConfigError(
                f"--backend sglang with --workload {workload.name}, whose prompts are messages.",
                expected="SGLang's /generate takes plain text and applies no chat template.",
                todo="Use --backend openai (SGLang has it as well), or prompts without a template: "
                "--workload raw:PATH.",
            )


def new_recorder(run_id: str, facts: BackendFacts, backend: Backend) -> Recorder:
    """Counters for Prometheus of what ``backend`` (opened) will run."""
    about = {
        "run_id": run_id,
        "version": __version__,
        "backend": facts.backend,
        "target": facts.target,
        "draft": facts.draft,
    }
    return Recorder(about, end_ids=facts.end_ids, state=engine_state(backend))


def engine_state(backend: Backend) -> Callable[[], EngineState] | None:
    """What to ask for the state of an engine in this process; None for an outside server."""
    if "specbench.backends.inprocess" not in sys.modules:
        return None
    from specbench.backends.inprocess import InProcessBackend

    if not isinstance(backend, InProcessBackend):
        return None

    def state() -> EngineState:
        engine = backend.engine
        pool = engine.memory.target
        return EngineState(
            running=len(engine.scheduler.running),
            queued=len(engine.scheduler.waiting),
            kv_used=engine.slots_in_use,
            kv_slots=pool.lanes * pool.capacity,
            graph_buckets=engine.graphs.count,
        )

    return state


async def run_block(
    backend: Backend,
    *,
    spec: SpecConfig,
    workload: str,
    temperature: float,
    batch_size: int,
    block: int,
    requests: Sequence[Request],
    load: LoadConfig,
    warmup: int,
    due_ns: Sequence[int] = (),
    watches: Sequence[Watch] = (),
) -> tuple[ArmRun, tuple[Caveat, ...]]:
    """Send one block of requests at one point; returns what happened, and what to hold against it.

    In a closed loop ``batch_size`` requests are in flight; in an open loop it is the most that
    the backend runs together, and ``due_ns`` may say when each request is due. ``warmup`` requests
    are sent first and left out of the result.
    ``watches`` see what happens as it does; the engine waits for them.

    Raises:
        UnreachableError: requests failed because nothing answers any more.
        SpecbenchError: what else concerns the whole run.
    """
    await backend.configure(spec, batch_size)
    settings = dataclasses.replace(load, concurrency=batch_size, warmup_requests=warmup)
    others = await _other_traffic(backend)
    result = await run_load(
        backend,
        requests,
        settings,
        due_ns=due_ns,
        on_event=_together([watch.event for watch in watches]),
        on_trace=_together([watch.trace for watch in watches]),
    )
    if any(trace.finish is Finish.ERROR for trace in result.traces):
        await backend.open()  # raises when the server is gone: the block is then to be run again
    arm = ArmRun(
        point_id=spec.point_id,
        workload=workload,
        batch_size=batch_size,
        temperature=temperature,
        block=block,
        started_ns=result.started_ns,
        wall_ns=result.wall_ns,
        requests=tuple(trace for trace in result.traces if not trace.warmup),
    )
    others = (*others, *await _other_traffic(backend))
    return arm, (*_caveats(backend, result.client_lag), *others)


async def _other_traffic(backend: Backend) -> tuple[Caveat, ...]:
    """other_traffic, by the counters of an outside server; called while nothing is in flight."""
    text = await backend.other_traffic() if isinstance(backend, SeesTraffic) else ""
    if not text:
        return ()
    return (Caveat(code="other_traffic", severity=Severity.WARNING, text=text),)


def _together(sinks: Sequence[Callable[..., None]]) -> Callable[..., None] | None:
    """One function that calls all of ``sinks``; None when there is none."""
    if len(sinks) < 2:
        return sinks[0] if sinks else None

    def show(*what: object) -> None:
        for sink in sinks:
            sink(*what)

    return show


def _caveats(backend: Backend, lag: ClientLag) -> tuple[Caveat, ...]:
    if not isinstance(backend, TakesOnTrust):
        # In this process the engine's own steps hold up the event loop: its lag means nothing.
        return ()
    trusted = [
        Caveat(code="server_settings", severity=Severity.WARNING, text=note)
        for note in backend.notes
    ]
    return (*trusted, *_client_lag(lag))


def _client_lag(lag: ClientLag) -> tuple[Caveat, ...]:
    """client_saturated, when one delivery in a hundred may be stamped over 10 ms too late."""
    if lag.p99_ns is None or lag.p99_ns <= MOST_LAG_NS:
        return ()
    return (
        Caveat(
            code="client_saturated",
            severity=Severity.WARNING,
            text="the client's event loop was over 10 ms late at the 99th percentile: latencies "
            "are the client's too",
        ),
    )
