"""How rank 0 tells the others what to do: each command goes to all, in order, before it is done.

Ranks compute the same from the same commands, so nothing else has to be sent: no token, no
verdict. A step, by far the most frequent, is one number; any other command an object. Objects are
pickled by torch; both ends are processes of one run on one machine, joined over the loopback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from specbench.engine.parallel import Ranks

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Command:
    """What to do, and with which arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


STEP, STOP = Command("step"), Command("stop")


def send(ranks: Ranks, command: Command) -> None:
    """Tell all other ranks; only rank 0 may.

    Raises:
        RuntimeError: a rank has gone.
    """
    plain = command == STEP
    dist.broadcast(torch.tensor([int(plain)]), 0, group=ranks.commands)
    if not plain:
        dist.broadcast_object_list([command], 0, group=ranks.commands, device=CPU)


def receive(ranks: Ranks) -> Command:
    """The next command of rank 0; waits for it.

    Raises:
        RuntimeError: rank 0 has gone.
    """
    plain = torch.zeros(1, dtype=torch.int64)
    dist.broadcast(plain, 0, group=ranks.commands)
    if plain.item():
        return STEP
    box: list[Any] = [None]
    dist.broadcast_object_list(box, 0, group=ranks.commands, device=CPU)
    command: Command = box[0]
    return command


def gather(ranks: Ranks, own: Any) -> list[Any]:
    """``own`` of every rank, by rank, on every rank."""
    everyone: list[Any] = [None] * ranks.count
    dist.all_gather_object(everyone, own, group=ranks.commands)
    return everyone
