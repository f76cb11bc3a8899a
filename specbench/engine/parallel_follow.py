"""A rank beside rank 0: does what it is told, until it is told to stop or rank 0 is gone.

Run as ``python -m specbench.engine.parallel_follow MEETING RANK COUNT DEVICE_TYPE TIMEOUT_S``;
rank 0 starts it (``parallel_lead.Crew``). Its standard input is a pipe that rank 0 holds.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specbench.config import EngineConfig
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.engine.parallel import Ranks
from specbench.engine.parallel_check import RankDisagreement
from specbench.engine.parallel_commands import STOP, Command, gather, receive
from specbench.engine.parallel_folder import end_with
from specbench.engine.parallel_models import ShardedMaker
from specbench.errors import EngineError, RequestError, SpecbenchError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """What is loaded: the folders of a pair, and what its captured layers come from."""

    target: Path
    draft: Path | None = None
    capture_ids: tuple[int, ...] | None = None
    capture_default: bool = False


def load_share(ranks: Ranks, folders: Folders, config: EngineConfig) -> ModelPair:
    """This rank's shards of a pair; all ranks call it together.

    Raises:
        UsageError: as ``ModelPair.load``, on every rank alike.
    """
    own = replace(config, device=str(ranks.device))
    ids, default = folders.capture_ids, folders.capture_default
    maker = ShardedMaker(ranks)
    return ModelPair.load(folders.target, folders.draft, own, ids, default, maker)


def hashes_by_rank(engine: Engine, ranks: Ranks) -> dict[int, list[str]]:
    """A hash of what each rank committed, per prompt and cycle, where the engine keeps them."""
    own = engine.agreement.hashes if engine.agreement else []
    return dict(enumerate(gather(ranks, own)))


@torch.inference_mode()
def features_by_rank(engine: Engine, ranks: Ranks, tokens: Sequence[int]) -> dict[int, Tensor]:
    """Captured features [rows, A·H] of a text, as each rank has them; only while nothing runs.

    Raises:
        EngineError: requests are in flight.
    """
    if not engine.idle:
        raise EngineError("features were asked for while requests are in flight.")
    features = engine.runner.prefill(0, 0, tokens, last=False).features
    return dict(enumerate(gather(ranks, features.cpu())))


class Follower:
    """Does the commands of rank 0 on models and an engine of its own."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._pair: ModelPair | None = None
        self._engine: Engine | None = None

    def run(self) -> None:
        """Work until the command to stop. What rank 0's caller did wrong concerns rank 0 alone."""
        while (command := receive(self._ranks)) != STOP:
            try:
                self._do(command)
            except (UsageError, RequestError):
                continue

    def _do(self, command: Command) -> None:
        if command.name == "load":
            self._engine, self._pair = None, None  # gone before their successors come
            self._pair = load_share(self._ranks, *command.arguments)
        elif command.name == "engine":
            self._new_engine(*command.arguments)
        elif self._engine is None:
            raise EngineError(f"{command.name} came before an engine was made.")
        elif command.name == "hashes":
            hashes_by_rank(self._engine, self._ranks)
        elif command.name == "features":
            features_by_rank(self._engine, self._ranks, *command.arguments)
        else:
            call: Any = getattr(self._engine, command.name)
            call(*command.arguments)

    def _new_engine(self, config: EngineConfig, keep_hashes: bool) -> None:
        if self._pair is None:
            raise EngineError("an engine was asked for before a pair was loaded.")
        self._engine = Engine(self._pair, config)
        if self._engine.agreement is not None:
            self._engine.agreement.keep = keep_hashes


def main(words: Sequence[str]) -> int:
    """Join the others and work; the exit code says whether rank 0 ended it."""
    meeting, device_type = Path(words[0]), words[3]
    rank, count, timeout_s = int(words[1]), int(words[2]), float(words[4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is rank 0's to answer
    end_with(sys.stdin.fileno(), meeting.parent)
    meeting.with_name(f"ready-{rank}").touch()
    ranks = Ranks.join(meeting, rank, count, device_type, timeout_s)
    try:
        Follower(ranks).run()
    except RankDisagreement:  # raised on rank 0 too, which tells it
        return 3
    except (SpecbenchError, RuntimeError) as error:  # the latter when a connection breaks
        sys.stderr.write(f"specbench: rank {rank}: {str(error).splitlines()[0]}\n")
        return 3
    ranks.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
