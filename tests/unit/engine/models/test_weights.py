"""Weights come in the dtype that was asked for, and must be finite."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.checkpoint import read_draft, read_target
from specbench.engine.models.weights import load_tensors
from specbench.errors import CheckpointError
from tests.tiny import shared_pair, write_pair

CPU = torch.device("cpu")


def test_floats_are_converted_and_maps_are_not() -> None:
    spec, _ = read_target(shared_pair().target)
    tensors = load_tensors(read_draft(shared_pair().draft, spec)[1], torch.float64, CPU)
    assert tensors["fc.weight"].dtype == torch.float64
    assert tensors["d2t"].dtype == torch.int64
    assert tensors["t2d"].dtype == torch.bool


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    path = pair.target / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][3] = float("inf")
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight .* not finite"):
        load_tensors(read_target(pair.target)[1], torch.float32, CPU)


def test_what_the_library_refuses_is_one_clear_error(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    folder = read_target(pair.target)[1]
    path = pair.target / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])  # cut off after it was checked
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        load_tensors(folder, torch.float32, CPU)
