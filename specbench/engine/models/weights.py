"""Tensors of a checked checkpoint folder, read from safetensors into one dtype on one device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specbench.checkpoint import Folder
from specbench.errors import CheckpointError

Part = Callable[[str, Tensor], Tensor]
# Small differences between these decide which expert runs: never rounded to half precision.
EXACT = (".mlp.gate.weight", ".e_score_correction_bias")


def load_tensors(
    folder: Folder, dtype: torch.dtype, device: torch.device, part: Part | None = None
) -> dict[str, Tensor]:
    """The tensors of ``folder.tensors`` by name, read file by file, nothing else.

    Floats become ``dtype`` (``EXACT`` ones at least float32), maps such as d2t keep theirs.
    ``part`` keeps of each, by name, what this process needs; the whole is checked before.

    Raises:
        CheckpointError: a weight is not finite, or the library cannot read a file.
    """
    by_file: dict[object, list[str]] = defaultdict(list)
    for name, entry in folder.tensors.items():
        by_file[entry.path].append(name)
    tensors: dict[str, Tensor] = {}
    for path in folder.files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in by_file[path]:
                    value = file.get_tensor(folder.tensors[name].name)
                    tensors[name] = _cast(name, _checked(name, value, folder), dtype, device, part)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}.", todo="Export or copy the file again."
            ) from error
    return tensors


def offsets_of(ids: Tensor) -> Tensor:
    """A map of target ids [Vd] as the offsets that everything here reads (engine-spec 1.8)."""
    return ids.long() - torch.arange(len(ids), device=ids.device)


def _checked(name: str, value: Tensor, folder: Folder) -> Tensor:
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise CheckpointError(
            f"{name} in {folder.path} holds values that are not finite.",
            todo="Export the checkpoint again.",
        )
    return value


def _cast(
    name: str, value: Tensor, dtype: torch.dtype, device: torch.device, part: Part | None
) -> Tensor:
    value = value if part is None else part(name, value)
    if value.is_floating_point():
        exact = name.endswith(EXACT) and dtype.itemsize < 4
        value = value.to(torch.float32 if exact else dtype)
    return value.to(device)
