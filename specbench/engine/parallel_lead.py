"""Rank 0: starts the other ranks, and an engine whose every call is told to them first.

Rank 0 alone has requests, load and files. A process per further rank is started on this machine;
they end with it, whatever happens (``parallel_folder``).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor

from specbench.checkpoint import read_draft, read_target
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.batch import Emission, Handle
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair, resolve_device
from specbench.engine.parallel import Ranks, check_devices
from specbench.engine.parallel_commands import STEP, STOP, Command, send
from specbench.engine.parallel_folder import MeetingFolder
from specbench.engine.parallel_follow import Folders as Folders  # callers of lead_engine need it
from specbench.engine.parallel_follow import features_by_rank, hashes_by_rank, load_share
from specbench.engine.parallel_plan import check_shares
from specbench.errors import EngineError
from specbench.request import Request

TIMEOUT_S = 600.0
START_S = 300.0
PATIENCE_S = 10.0


class Crew:
    """The processes of one run: this one, rank 0, and those that it started."""

    def __init__(self, count: int, device_type: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Start ``count`` - 1 processes and meet them.

        Args:
            count: ranks, this process included.
            device_type: ``cuda``, a device for each rank, or ``cpu``.
            timeout_s: how long a collective may wait for the slowest rank.

        Raises:
            ConfigError: fewer CUDA devices than ranks.
            EngineError: a process did not start.
        """
        check_devices(device_type, count)
        self._folder = MeetingFolder()
        meeting = self._folder.path / "meeting"
        program = [sys.executable, "-m", "specbench.engine.parallel_follow", str(meeting)]
        self._followers = [
            subprocess.Popen(
                [*program, str(rank), str(count), device_type, str(timeout_s)],
                stdin=subprocess.PIPE,  # closed with this process
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the lead, which ends them
            )
            for rank in range(1, count)
        ]
        self._joined = False
        try:
            self._await_start(meeting)
            self.ranks = Ranks.join(meeting, 0, count, device_type, timeout_s)
        except BaseException:
            self.close()
            raise
        self._joined = True

    def _await_start(self, meeting: Path) -> None:
        """Wait until all have come as far as to meet: a process that dies before is noticed."""
        until = time.perf_counter_ns() + START_S * 1e9
        for rank in range(1, len(self._followers) + 1):
            while not meeting.with_name(f"ready-{rank}").exists():
                self._refuse_ended()
                if time.perf_counter_ns() > until:
                    raise EngineError(f"rank {rank} has not started within {START_S:.0f} s.")
                time.sleep(0.02)

    def load(self, folders: Folders, config: EngineConfig) -> ModelPair:
        """Load a pair on all ranks; gives rank 0's shards.

        Raises:
            UsageError: as ``ModelPair.load``.
            EngineError: a rank has ended.
        """
        self.tell(Command("load", (folders, config)))
        with self.watched():
            return load_share(self.ranks, folders, config)

    def tell(self, command: Command) -> None:
        """Tell the others what to do; do it here right after.

        Raises:
            EngineError: a rank has ended.
        """
        with self.watched():
            send(self.ranks, command)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A connection that breaks means that a rank has ended: say which, and how.

        Raises:
            EngineError: it has.
        """
        try:
            yield
        except RuntimeError:  # torch's, when a connection breaks
            until = time.perf_counter_ns() + PATIENCE_S * 1e9
            while time.perf_counter_ns() < until:
                self._refuse_ended()
                time.sleep(0.02)
            raise

    def _refuse_ended(self) -> None:
        for rank, follower in enumerate(self._followers, start=1):
            if (code := follower.poll()) is not None:
                raise EngineError(
                    f"rank {rank} has ended with exit code {code}.",
                    todo="What it said stands above; --tensor-parallel 1 runs without it.",
                )

    def close(self) -> None:
        """Let the others stop, and end those that cannot."""
        if self._joined:
            with suppress(RuntimeError):
                send(self.ranks, STOP)
        for follower in self._followers:
            try:
                follower.wait(PATIENCE_S if self._joined else 0)
            except subprocess.TimeoutExpired:
                follower.kill()
                follower.wait()
            if follower.stdin is not None:
                follower.stdin.close()
        if self._joined:
            self.ranks.leave()
        self._joined = False
        self._folder.remove()


class LeadEngine(Engine):
    """Rank 0's engine; the others do what it does."""

    def __init__(
        self, pair: ModelPair, config: EngineConfig, crew: Crew, *, keep_hashes: bool = False
    ) -> None:
        """``keep_hashes`` for ``hashes``: eight bytes per rank and cycle."""
        self._crew = crew
        crew.tell(Command("engine", (config, keep_hashes)))
        super().__init__(pair, config)
        if self.agreement is not None:
            self.agreement.keep = keep_hashes

    def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """See ``Engine.configure``."""
        self._crew.tell(Command("configure", (spec, batch_size)))
        with self._crew.watched():
            super().configure(spec, batch_size)

    def submit(self, request: Request) -> Handle:
        """See ``Engine.submit``."""
        self._crew.tell(Command("submit", (request,)))
        return super().submit(request)

    def cancel(self, handle: Handle) -> None:
        """See ``Engine.cancel``; a handle that is gone is not worth a word."""
        if self.scheduler.find(handle) is not None:
            self._crew.tell(Command("cancel", (handle,)))
            super().cancel(handle)

    def step(self) -> list[Emission]:
        """See ``Engine.step``.

        Raises:
            RankDisagreement: the ranks do not do the same.
            EngineError: a rank has ended.
        """
        self._crew.tell(STEP)
        with self._crew.watched():
            return super().step()

    def top2_gap(self, request: Request, output_ids: Sequence[int]) -> float:
        """See ``Engine.top2_gap``."""
        self._crew.tell(Command("top2_gap", (request, tuple(output_ids))))
        with self._crew.watched():
            return super().top2_gap(request, output_ids)

    def close(self) -> None:
        """End the other ranks."""
        self._crew.close()

    def hashes(self) -> dict[int, list[str]]:
        """By rank, a hash of what it committed per prompt and cycle since the engine was made.

        They are equal unless ``step`` has raised RankDisagreement, after which no rank answers.
        """
        self._crew.tell(Command("hashes"))
        return hashes_by_rank(self, self._crew.ranks)

    def features(self, tokens: Sequence[int]) -> dict[int, Tensor]:
        """By rank, the captured features [rows, A·H] of a text; only while nothing runs.

        Raises:
            EngineError: requests are in flight.
        """
        self._crew.tell(Command("features", (tuple(tokens),)))
        with self._crew.watched():
            return features_by_rank(self, self._crew.ranks, tokens)


def _check_shares(folders: Folders, count: int, d2t: str) -> None:
    """Refuse a pair that cannot be shared before any process is started."""
    spec, _ = read_target(folders.target)
    check_shares(spec, count)
    if folders.draft is not None:
        ids, default = folders.capture_ids, folders.capture_default
        draft, _ = read_draft(
            folders.draft, spec, capture_ids=ids, capture_default=default, d2t=d2t
        )
        check_shares(draft, count)


def lead_engine(
    folders: Folders,
    config: EngineConfig,
    *,
    keep_hashes: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> LeadEngine:
    """An engine over ``config.tensor_parallel`` ranks, started for it; ``close`` ends them.

    Args:
        folders: what to load.
        config: of the engine, the device too.
        keep_hashes: for ``LeadEngine.hashes``.
        timeout_s: how long a rank waits for the slowest.

    Raises:
        UsageError: as ``ModelPair.load``, or there are fewer CUDA devices than ranks.
        EngineError: a rank did not start, or has ended.
    """
    _check_shares(folders, config.tensor_parallel, config.d2t)
    device, _ = resolve_device(config, "float32")
    crew = Crew(config.tensor_parallel, device.type, timeout_s=timeout_s)
    try:
        return LeadEngine(crew.load(folders, config), config, crew, keep_hashes=keep_hashes)
    except BaseException:
        crew.close()
        raise
