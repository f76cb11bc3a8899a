"""Tensors of the working folder as safetensors, with a few plain values beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tools.demo_pair.optim import Optimiser


def save(path: Path, tensors: Mapping[str, Tensor], **values: float | list[float]) -> None:
    """Write through a temporary file, so that a stop leaves the old file whole."""
    part = path.with_suffix(".part")
    whole = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    save_file(whole, str(part), metadata={"values": json.dumps(values)})
    part.replace(path)


def load(path: Path) -> dict[str, Tensor]:
    """Read the tensors."""
    found: dict[str, Tensor] = load_file(str(path))
    return found


def values(path: Path) -> dict[str, Any]:
    """Read the plain values."""
    with safe_open(str(path), framework="pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()["values"])
    return found


def save_training(
    path: Path,
    model: nn.Module,
    optimiser: Optimiser,
    step: int,
    seconds: float,
    losses: list[float] | None = None,
) -> None:
    """Everything that a resumed training needs."""
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"optimiser/{name}": value for name, value in optimiser.state().items()}
    save(path, tensors, step=step, seconds=seconds, losses=losses or [])


def load_training(
    path: Path, model: nn.Module, optimiser: Optimiser
) -> tuple[int, float, list[float]]:
    """Restore; returns the steps done, the seconds they took and the losses. Else zeros."""
    if not path.exists():
        return 0, 0.0, []
    tensors = load(path)
    model.load_state_dict(_below(tensors, "model/"))
    optimiser.restore(_below(tensors, "optimiser/"))
    kept = values(path)
    return int(kept["step"]), float(kept["seconds"]), list(kept.get("losses", []))


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
