"""Tensors of a checked checkpoint folder, read from safetensors into one dtype on one device."""

from __future__ import annotations

import torch
from safetensors import safe_open
from torch import Tensor

from specbench.checkpoint import Folder
from specbench.errors import CheckpointError


def load_tensors(folder: Folder, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """All tensors by name; floats become ``dtype``, maps such as d2t keep theirs.

    Raises:
        CheckpointError: a weight is not finite, or the library cannot read a file.
    """
    tensors: dict[str, Tensor] = {}
    for path in folder.files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  (not a dict)
                    tensors[name] = file.get_tensor(name)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error}.") from error
    for name, value in tensors.items():
        if value.is_floating_point():
            if not bool(torch.isfinite(value).all()):
                raise CheckpointError(
                    f"{name} in {folder.path} holds values that are not finite.",
                    todo="Export the checkpoint again.",
                )
            value = value.to(dtype)
        tensors[name] = value.to(device)
    return tensors
