"""The ranks of one engine, and how tensors lie on them and are joined again (engine-spec 9).

Everything between ranks is torch's own: a device mesh, distributed tensors, and their
redistribution. A rank's forward works on plain tensors, the local shards; ``summed`` and
``gathered`` are the two places where shards become whole. What they return is bit for bit the same
on every rank, and from that follows the rest: features are full-size and equal, replicated weights
(fc, norms, routers, d2t) need no exchange, and every rank takes the same decisions.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor import distribute_tensor as distribute

from specbench.errors import ConfigError

LOOPBACK = ("lo", "lo0")
ANY_SILENCE = timedelta(days=365)  # a server may have nothing to do; an end of rank 0 is noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process's place among ``count`` ranks of a one-dimensional mesh."""

    mesh: DeviceMesh
    commands: dist.ProcessGroup
    rank: int
    count: int

    @classmethod
    def join(
        cls, meeting: Path, rank: int, count: int, device_type: str, timeout_s: float
    ) -> Ranks:
        """Meet the other ranks of this machine; returns when all are there.

        Args:
            meeting: a file that does not exist yet, the same for all.
            rank: 0 .. count - 1; on CUDA the index of the rank's device.
            count: ranks together.
            device_type: ``cuda`` (NCCL) or ``cpu`` (gloo); commands always travel by gloo, and
                may be waited for as long as rank 0 lives.
            timeout_s: how long a collective waits for the slowest rank before it fails.

        Raises:
            ConfigError: fewer CUDA devices than ranks.
        """
        check_devices(device_type, count)
        if device_type == "cuda":
            torch.cuda.set_device(rank)
        for name in {name for _, name in socket.if_nameindex()}.intersection(LOOPBACK):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)  # nobody else can reach the ranks
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device_type == "cuda" else "cpu:gloo",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=timeout_s),
        )
        return cls(
            mesh=init_device_mesh(device_type, (count,)),
            commands=dist.new_group(backend="gloo", timeout=ANY_SILENCE),
            rank=rank,
            count=count,
        )

    @staticmethod
    def leave() -> None:
        """Give up the connections; nothing may be under way."""
        dist.destroy_process_group()

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        kind = self.mesh.device_type
        return torch.device(kind, self.rank) if kind == "cuda" else torch.device(kind)

    @property
    def facts(self) -> dict[str, str]:
        """What of a run's provenance the ranks decide; they capture no graphs."""
        backend = "nccl" if self.mesh.device_type == "cuda" else "gloo"
        return {"tensor_parallel": str(self.count), "collectives": backend, "graphs": "eager"}

    def shard(self, value: Tensor, dim: int) -> DTensor:
        """This rank's part of ``value``, which every rank has, along ``dim``; nothing is sent."""
        return distribute(value, self.mesh, [Shard(dim)], src_data_rank=None)

    def summed(self, partial: Tensor) -> Tensor:
        """The sum of every rank's ``partial``, the same bits on all."""
        return self._whole(partial, Partial())

    def gathered(self, part: Tensor, width: int) -> Tensor:
        """Columns of all ranks side by side: [R, own] to [R, ``width``]; shares may be uneven."""
        return self._whole(part, Shard(1), (part.shape[0], width))

    def by_rank(self, own: Tensor) -> Tensor:
        """``own`` of every rank, stacked: [ranks, ...]."""
        return self._whole(own[None].to(self.device), Shard(0))

    def rows(self, table: DTensor, tokens: Tensor) -> Tensor:
        """Rows [R, H] of a table that is sharded by rows, for ids [R]: look up one's own, sum."""
        ids = DTensor.from_local(tokens, self.mesh, [Replicate()], run_check=False)
        return _local(F.embedding(ids, table), self.mesh)

    def _whole(
        self, own: Tensor, placement: Placement, shape: tuple[int, ...] | None = None
    ) -> Tensor:
        size = None if shape is None else torch.Size(shape)
        stride = None if size is None else torch.empty(size, device="meta").stride()
        spread = DTensor.from_local(
            own, self.mesh, [placement], run_check=False, shape=size, stride=stride
        )
        return _local(spread, self.mesh)


def check_devices(device_type: str, count: int) -> None:
    """Hold the number of ranks against the CUDA devices, one each.

    Raises:
        ConfigError: names both numbers.
    """
    if device_type == "cuda" and torch.cuda.device_count() < count:
        raise ConfigError(
            f"tensor_parallel={count} with {torch.cuda.device_count()} CUDA devices.",
            expected="One device for each rank.",
            todo="Lower --tensor-parallel, or give --device cpu.",
        )


def _local(spread: Tensor, mesh: DeviceMesh) -> Tensor:
    assert isinstance(spread, DTensor)
    out: Tensor = spread.redistribute(mesh, [Replicate()]).to_local()
    return out
