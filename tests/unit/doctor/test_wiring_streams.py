"""A stream that stands where a layer's should be is named from its values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specbench.doctor.wiring_streams import name_stream
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_text import Sample
from specbench.engine.wiring import Tap

ROWS, WIDTH, OWN = 40, 16, 2


@pytest.fixture(scope="module")
def captured() -> Capture:
    """Two texts of 20 rows with random streams of 4 layers."""
    made = torch.Generator().manual_seed(1)

    def stream() -> Tensor:
        return torch.randn(ROWS, WIDTH, generator=made) * 3

    features = {(Tap.RESIDUAL, k): stream() for k in range(5)}
    features |= {(Tap.NORMED, k): stream() for k in range(5)}
    features |= {(Tap.MLP, k): stream() for k in range(1, 5)}
    sample = Sample(request_id="", category="", tokens=(0,) * 20, prompt_len=5, output_len=15)
    flat = torch.zeros(ROWS, dtype=torch.int64)
    return Capture(
        samples=(sample, sample), starts=(0, 20), tokens=flat, features=features,
        normed=stream(), best=flat, best_known=flat, gap=flat.double(),
    )  # fmt: skip


def named(captured: Capture, chunk: Tensor, rows: Tensor) -> str:
    texts = (rows >= 20).long()
    stream, off = name_stream(captured, texts, rows, chunk, OWN)
    assert off.any().item() is (stream.kind != "layer" or stream.layer != OWN)
    return stream.told(OWN)


def test_every_kind_of_stream_is_told_apart(captured: Capture) -> None:
    rows = torch.cat([torch.arange(3, 18), torch.arange(23, 38)])
    right = captured.features[Tap.RESIDUAL, OWN]
    own = right[rows]
    noise = torch.randn(own.shape, generator=torch.Generator().manual_seed(2))
    for chunk, told in (
        (own, "layer 2"),
        (captured.features[Tap.RESIDUAL, 4][rows], "layer 4"),
        (captured.features[Tap.NORMED, 2][rows], "layer 2 after a norm"),
        (captured.features[Tap.MLP, 3][rows], "the MLP output of layer 3 without the residual"),
        (own * 0, "nothing (zeros)"),
        (own * 0.5, "0.5 of layer 2"),
        (own.clamp(-1.5, 1.5), "layer 2 clipped at 1.5"),
        (own + 0.02 * noise * own.abs(), "layer 2 rounded by 2 %"),
        (right[rows - 1], "layer 2, rows moved by -1"),
        (right[rows - torch.arange(30) % 3], "layer 2, rows of an earlier step"),
        (right[rows + torch.arange(30) % 5 - 2], "layer 2, rows of other positions"),
        (noise, "no stream of the target"),
    ):
        assert named(captured, chunk, rows) == told


def test_a_few_wrong_rows_are_no_known_stream(captured: Capture) -> None:
    rows = torch.arange(3, 18)
    chunk = captured.features[Tap.RESIDUAL, OWN][rows].clone()
    chunk[4] = 9.0
    assert named(captured, chunk, rows) == "no stream of the target"
