"""A stand-in for a running sweep: a page of every series that grows with each scrape.

Fed through the recorder and the GPU sampler, from the same scripted steps each time, so that
every quotient on a board is known.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from specbench.collectors.exposition import Metrics
from specbench.collectors.gpu import GpuSampler
from specbench.collectors.gpu_series import GpuSeries
from specbench.collectors.live import EngineState, Recorder
from specbench.collectors.nvml import Nvml, open_nvml
from specbench.collectors.points import Cell
from specbench.config import SpecConfig
from specbench.request import Request
from specbench.trace import Chunk, Evidence, Finish, RequestTrace, StepTrace, Usage
from tests.nvml_stand_in import Board, NvmlStandIn

MS = 1_000_000
WORKLOAD = "stand-in"
SPECS = (
    SpecConfig.baseline(),
    SpecConfig.chain(3),
    SpecConfig(num_steps=3, topk=2, num_draft_tokens=6),
)
ACCEPTED = (3, 0, 2, 1)
PLAIN_MS, SPEC_MS = 10, 16


def accept_length() -> float:
    """τ of both speculative points."""
    return 1 + sum(ACCEPTED) / len(ACCEPTED)


def speedup() -> float:
    """Of both: nothing is trimmed, so emitted accept length is τ."""
    return accept_length() * PLAIN_MS / SPEC_MS


class Published:
    """The page, and what feeds it."""

    def __init__(self, run_id: str, sampler: GpuSampler) -> None:
        self._cells = [
            Cell(spec=spec, batch_size=4, temperature=0.0, workload=WORKLOAD) for spec in SPECS
        ]
        run = {"run_id": run_id, "version": "1", "backend": "b", "target": "t", "draft": "d"}
        self._recorder = Recorder(run, state=_state)
        self._recorder.plan(self._cells * 300, saved=10)
        self._metrics = Metrics(self._recorder)
        self._metrics.registry.register(GpuSeries(sampler))
        self._turn = 0
        self._lock = threading.Lock()

    def page(self) -> bytes:
        """What a scraper reads; each time a request of every point has ended."""
        with self._lock:
            self._turn += 1
            for cell in self._cells:
                self._run(cell)
            self._recorder.block_saved()
            return self._metrics.page()[0]

    def _run(self, cell: Cell) -> None:
        record = self._recorder.begin(cell)
        trace = _trace(cell.spec, self._turn)
        for step in trace.steps:
            record.event(trace.request, step)
        for chunk in trace.chunks:
            record.event(trace.request, chunk)
        record.trace(trace)


def _state() -> EngineState:
    return EngineState(running=4, queued=2, kv_used=300, kv_slots=1000, graph_buckets=3)


def _trace(spec: SpecConfig, turn: int) -> RequestTrace:
    hits = (0,) * 4 if spec.is_baseline else ACCEPTED
    took_ms = PLAIN_MS if spec.is_baseline else SPEC_MS
    steps = tuple(
        StepTrace(
            batch_step=turn * 100 + i,
            batch=1,
            committed=10 + i,
            drafted=spec.num_draft_tokens - 1,
            depth=spec.num_steps,
            accepted=hit,
            emitted=hit + 1,
            draft_ns=2 * MS if spec.num_steps else 0,
            extend_ns=MS,
            verify_ns=(took_ms - 2) * MS - (2 * MS if spec.num_steps else 0),
            other_ns=MS,
        )
        for i, hit in enumerate(hits)
    )
    chunks = (
        Chunk(at_ns=50 * MS, tokens=1, text="a"),
        *(
            Chunk(at_ns=(50 + took_ms * (i + 1)) * MS, tokens=step.emitted, text="b")
            for i, step in enumerate(steps)
        ),
    )
    tokens = 1 + sum(step.emitted for step in steps)
    return RequestTrace(
        request=Request(request_id=f"r{turn}", prompt="p"),
        due_ns=0,
        sent_ns=0,
        end_ns=chunks[-1].at_ns,
        chunks=chunks,
        steps=steps,
        finish=Finish.LENGTH,
        evidence=Evidence.STEPS,
        usage=Usage(prompt_tokens=5, completion_tokens=tokens),
        output_ids=tuple(range(tokens)),
    )


@dataclass(frozen=True)
class Scraped:
    """Where the pages are, as ``host:port``."""

    addresses: tuple[str, ...]


@contextmanager
def published(*run_ids: str) -> Iterator[Scraped]:
    """Serve one page per run at /metrics, on free loopback ports."""
    nvml = open_nvml(NvmlStandIn(Board(uuid="GPU-1"), Board(uuid="GPU-2")))
    assert isinstance(nvml, Nvml)
    with ExitStack() as stack:
        sampler = stack.enter_context(GpuSampler(nvml, nvml.gpus, interval_s=0.2, keep=False))
        servers = [stack.enter_context(_serving(Published(name, sampler))) for name in run_ids]
        yield Scraped(tuple(f"127.0.0.1:{server.server_address[1]}" for server in servers))


@contextmanager
def _serving(page: Published) -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page.page()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a scraper that gave up
                self.wfile.write(body)

        def log_message(self, *what: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
