"""Regions of a step that a CUDA device captures once and replays: fixed shapes, no host sync.

Three regions cover a step: the target's verify, all of a drafting, and the draft's extend, each
per batch size. A region reads static buffers only and is a function of nothing else, so that it
may run in three ways that give the same tensors:

- eager: call it. Without a CUDA device nothing is captured, and the exact-length forms of the
  same code are used where they are faster (``Batch.columns`` None).
- captured: ``torch.cuda.CUDAGraph``; outputs keep their addresses.
- emulated: what a replay would demand is checked on any device. The region runs eagerly, its
  inputs must keep address and shape, and its outputs go to the tensors of the first call.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.errors import EngineError

Outputs = tuple[Tensor, ...]
Signature = tuple[tuple[object, ...], ...]


class GraphMode(enum.Enum):
    """How regions run."""

    EAGER = "eager"
    CAPTURED = "cuda_graph"
    EMULATED = "emulated"


@dataclass(slots=True)
class _Recorded:
    """A region after its first call: where its inputs are, and the outputs that replays fill."""

    signature: Signature
    outputs: Outputs
    graph: torch.cuda.CUDAGraph | None = None


class Graphs:
    """The regions of one configuration, by name and batch size."""

    WARM_UPS = 2

    def __init__(self, device: torch.device, mode: GraphMode) -> None:
        if mode is GraphMode.CAPTURED and device.type != "cuda":
            raise EngineError(f"graphs cannot be captured on {device.type}.", expected="cuda.")
        self.mode = mode
        self._device = device
        self._recorded: dict[Hashable, _Recorded] = {}

    @property
    def fixed(self) -> bool:
        """True when regions must have shapes that depend on nothing but the batch size."""
        return self.mode is not GraphMode.EAGER

    @property
    def count(self) -> int:
        """Regions recorded so far, one per name and batch size; 0 when regions run eagerly."""
        return len(self._recorded)

    def run(
        self, key: Hashable, inputs: Sequence[Tensor], region: Callable[[], Outputs]
    ) -> Outputs:
        """Run ``region``, or replay what it did at its first call under ``key``.

        Args:
            key: name and batch size.
            inputs: the static buffers that the region reads.
            region: reads ``inputs`` and returns its output tensors.

        Raises:
            EngineError: an input moved or changed its shape since the first call, so that a
                replay would silently work on stale data (engine-spec 7.3).
        """
        if self.mode is GraphMode.EAGER:
            return region()
        recorded, found = self._recorded.get(key), _signature(inputs)
        if recorded is None:
            self._recorded[key] = recorded = self._record(found, region)
            if self.mode is GraphMode.EMULATED:
                return recorded.outputs
        elif recorded.signature != found:
            raise EngineError(
                f"region {key}: its inputs were {recorded.signature} and are now {found}.",
                expected="Static buffers: a replay reads the addresses of the first call.",
            )
        if recorded.graph is not None:
            recorded.graph.replay()
        else:
            _overwrite(key, recorded.outputs, region())
        return recorded.outputs

    def _record(self, signature: Signature, region: Callable[[], Outputs]) -> _Recorded:
        if self.mode is GraphMode.EMULATED:
            return _Recorded(signature, region())
        # Regions are idempotent until the next one writes, so warming up repeats no harm.
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch has no types here
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(self.WARM_UPS):
                region()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # The current device may be another than the model's: the capture has to be on the latter.
        with torch.cuda.device(self._device), torch.cuda.graph(graph, stream=stream):
            outputs = region()
        return _Recorded(signature, outputs, graph)


def _signature(inputs: Sequence[Tensor]) -> Signature:
    return tuple((t.data_ptr(), tuple(t.shape), t.stride(), t.dtype) for t in inputs)


def _overwrite(key: Hashable, kept: Outputs, fresh: Outputs) -> None:
    """Put fresh outputs where the first call's are, as a replay does."""
    for old, new in zip(kept, fresh, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise EngineError(
                f"region {key}: an output was {list(old.shape)} {old.dtype} and is now "
                f"{list(new.shape)} {new.dtype}.",
                expected="Shapes that do not depend on data.",
            )
        if old.data_ptr() != new.data_ptr():
            old.copy_(new)
