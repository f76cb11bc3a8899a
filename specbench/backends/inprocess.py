"""The engine in this process, behind the backend protocol: one pump task, no threads.

The pump calls ``Engine.step`` and hands control to the event loop between steps, so the engine
never fights the load generator or a server for the interpreter lock.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from specbench.backends.base import BackendFacts, Event, Finished
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.batch import Emission, Handle
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.errors import BackendError, ConfigError, EngineError
from specbench.modelspec import as_record
from specbench.request import Request
from specbench.trace import Evidence


class InProcessBackend:
    """A ``Backend`` and ``GapProbe`` around one engine; models are loaded once, in ``open``."""

    def __init__(
        self,
        target_dir: Path | str,
        draft_dir: Path | str | None = None,
        config: EngineConfig | None = None,
        capture_ids: tuple[int, ...] | None = None,
        capture_default: bool = False,
    ) -> None:
        self._target_dir, self._draft_dir = Path(target_dir), draft_dir
        self._config = config or EngineConfig()
        self._capture = (capture_ids, capture_default)
        self._engine: Engine | None = None
        self._queues: dict[Handle, asyncio.Queue[Emission]] = {}
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None

    @property
    def evidence(self) -> Evidence:
        """Every step is seen."""
        return Evidence.STEPS

    @property
    def engine(self) -> Engine:
        """The engine, once ``open`` has loaded it.

        Raises:
            EngineError: ``open`` was not called, or ``close`` was.
        """
        if self._engine is None:
            raise EngineError("the in-process backend is not open.", todo="Call open() first.")
        return self._engine

    async def open(self) -> BackendFacts:
        """Load both models and start the pump.

        Raises:
            UsageError: a checkpoint or the device is not what it should be, or has too little
                memory.
        """
        if self._engine is None:
            with _allocating():
                self._engine = self._new_engine()
            self._pump = asyncio.get_running_loop().create_task(self._run())
            self._pump.add_done_callback(self._stopped)
        return self._facts(self._engine)

    def _new_engine(self) -> Engine:
        """The engine in this process, or over the ranks that are asked for."""
        if self._config.tensor_parallel == 1:
            pair = ModelPair.load(self._target_dir, self._draft_dir, self._config, *self._capture)
            return Engine(pair, self._config)
        # torch's distributed tensors take a second to import
        from specbench.engine.parallel_lead import Folders, lead_engine

        draft = None if self._draft_dir is None else Path(self._draft_dir)
        ids, default = self._capture
        folders = Folders(
            target=self._target_dir, draft=draft, capture_ids=ids, capture_default=default
        )
        return lead_engine(folders, self._config)

    async def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """Switch to a point; nothing may be in flight.

        Raises:
            ConfigError: no draft, a batch beyond max_batch_size, or too little memory.
            EngineError: requests are in flight.
        """
        with _allocating():
            self.engine.configure(spec, batch_size)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Events of one request: StepTrace then Chunk per step, one Finished at the end.

        Closing the generator early cancels the request and frees its lane.

        Raises:
            RequestError: the request cannot be run.
            BackendError: its scores were not finite, or the backend was closed.
            EngineError: the engine has stopped; no request can be run any more.
        """
        self._check_pump()
        handle = self.engine.submit(request)
        queue: asyncio.Queue[Emission] = asyncio.Queue()
        self._queues[handle] = queue
        self._wake.set()
        try:
            while True:
                emission = await queue.get()
                if emission.error is not None:
                    self._check_pump()
                    raise emission.error
                if emission.trace is not None:
                    yield emission.trace
                if emission.chunk is not None:
                    yield emission.chunk
                if emission.finish is not None:
                    yield Finished(
                        finish=emission.finish,
                        usage=emission.usage,
                        output_ids=emission.output_ids,
                    )
                    return
        finally:
            del self._queues[handle]
            if self._engine is not None:
                self._engine.cancel(handle)

    async def close(self) -> None:
        """Stop the pump and drop the models."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        if self._engine is not None:
            self._engine.close()
        self._pump, self._engine = None, None

    def top2_gap(self, request: Request, output_ids: Sequence[int]) -> float:
        """Relative gap of the target's two best scores, from a plain forward."""
        return self.engine.top2_gap(request, output_ids)

    def text_of(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` without special tokens."""
        return self.engine.pair.codec.decode(ids)

    async def _run(self) -> None:
        engine = self.engine
        # Once, not per step (see Engine.step). The mode is the thread's, so other tasks of this
        # event loop run in it too; none of them computes with tensors.
        with torch.inference_mode():
            while True:
                if engine.idle:
                    self._wake.clear()
                    await self._wake.wait()
                for emission in engine.step():
                    queue = self._queues.get(emission.handle)
                    if queue is not None:
                        queue.put_nowait(emission)
                await asyncio.sleep(0)

    def _stopped(self, pump: asyncio.Task[None]) -> None:
        """Tell every waiting stream that the engine is gone."""
        error = None if pump.cancelled() else pump.exception()
        self._broken = error
        reason = f"{type(error).__name__}: {error}" if error else "it was closed"
        for handle, queue in self._queues.items():
            failure = BackendError(f"the engine stopped: {reason}.")
            queue.put_nowait(Emission(handle=handle, error=failure))

    def _check_pump(self) -> None:
        if self._broken is not None:
            name = type(self._broken).__name__
            raise EngineError(f"the engine stopped: {name}: {self._broken}.") from self._broken

    def _facts(self, engine: Engine) -> BackendFacts:
        pair = engine.pair
        draft = "" if self._draft_dir is None else _shown(Path(self._draft_dir))
        device = dict(pair.device_facts)
        if pair.draft_spec is not None:
            spec = pair.draft_spec
            device["capture_physical"] = ",".join(map(str, spec.capture_physical))
            device["capture_source"] = spec.capture_source
            device["draft_embedding"] = spec.embed_policy
            device["draft_spec"] = json.dumps(as_record(spec))
        caveats = (*pair.target_spec.caveats, *(pair.draft_spec.caveats if pair.draft_spec else ()))
        caveats += self._config.rules.caveats
        device["verification"] = self._config.verification.value
        for name in ("threshold_single", "threshold_acc"):
            if (threshold := getattr(self._config, name)) < 1.0:
                device[name] = f"{threshold:g}"
        return BackendFacts(
            backend="inprocess",
            target=_shown(self._target_dir),
            draft=draft,
            device=device,
            inputs=pair.inputs,
            max_len=engine.max_len,
            end_ids=pair.target_spec.eos_ids,
            caveats=caveats,
        )


@contextmanager
def _allocating() -> Iterator[None]:
    """Memory that is not there for weights and caches is a wrong setting, not a broken engine."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not known and "allocate memory" not in str(error):  # a plain RuntimeError on a CPU
            raise
        raise ConfigError(
            f"The memory does not suffice: {str(error).splitlines()[0]}",
            todo="Lower --batch-size, --max-len, --topk or --num-draft-tokens, or use a smaller "
            "model.",
        ) from None


def _shown(folder: Path) -> str:
    """A folder as a report names it: relative to where the command runs, if it lies below."""
    here = Path.cwd()
    whole = folder.resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(folder)
