"""Tensors that hold nothing are seen before anything is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench import demo
from specbench.doctor.checks import static_findings
from specbench.doctor.checks_subject import read_subject
from tests.unit.doctor.test_checks import draft


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_zeros_are_seen_in_any_dtype(tmp_path: Path, kind: torch.dtype) -> None:
    """All of them, and the columns of one layer of fc; zeros in some rows alone are weights."""
    folder = draft(tmp_path / "d")
    path = folder / "model.safetensors"
    held = load_file(path)
    held = {n: t if "t2d" in n or "d2t" in n else t.to(kind) for n, t in held.items()}
    held["fc.weight"][:, 256:512] = -0.0
    held["midlayer.mlp.up_proj.weight"].zero_()
    held["midlayer.mlp.gate_proj.weight"][:100] = 0
    held["midlayer.mlp.gate_proj.weight"][-100:] = 0
    held["norm.weight"][5] = torch.inf
    save_file(held, path)
    found = static_findings(read_subject(demo.TARGET, folder))
    assert [f.title for f in found if f.code == "tensors.values"] == [
        "fc.weight is all zeros in the columns of layer 4",
        "midlayer.mlp.up_proj.weight is all zeros",
        "norm.weight holds values that are not finite",
    ]
