"""Each rearrangement leaves the mathematics alone."""

from __future__ import annotations

import pytest
import torch

from specbench.engine.models.layers import (
    NEVER,
    PACKED_FROM,
    Norm,
    Projection,
    Rope,
    ScratchCache,
    can_pack,
    gain_from,
    pair_rows,
    rotate,
)
from specbench.modelspec import LayerShape, RopeSpec
from tests.reference import rope as half_split

CPU = torch.device("cpu")
SHAPE = LayerShape(hidden=16, heads=4, kv_heads=2, head_dim=4, inner=24, eps=1e-5)


@pytest.mark.parametrize("size", [(24, 16), (16, 24)])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("packed", [False, True])
def test_projection(size: tuple[int, int], rows: int, packed: bool) -> None:
    weight = torch.randn(size).half().float()
    x = torch.randn(rows, size[1])
    projection, expected = Projection(weight, packed=packed), x @ weight.T
    out, total = torch.empty(rows, size[0]), torch.ones(rows, size[0])
    projection.into(x, out)
    projection.add_to(total, x)
    summed = projection.plus(torch.ones(rows, size[0]), x)
    for found in (projection(x), out, total - 1, summed - 1):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert projection.read_bytes(rows) == weight.numel() * (2 if packed and rows > 1 else 4)


def test_only_exact_float16_weights_are_packed() -> None:
    half = torch.randn(4, 4).half().float()
    assert can_pack({"a": half, "norm": torch.randn(4)})
    assert not can_pack({"a": half, "b": half + 1e-7})
    assert not can_pack({"a": half.double()})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_norm_and_its_folding(dtype: torch.dtype) -> None:
    x, weight = torch.randn(5, 16, dtype=dtype), torch.rand(16, dtype=dtype) + 0.5
    matrix = torch.randn(8, 16, dtype=dtype)
    expected = torch.nn.functional.rms_norm(x, (16,), weight, 1e-5)
    torch.testing.assert_close(Norm(weight, 1e-5)(x), expected)
    if dtype != torch.bfloat16:
        norm = Norm(weight, 1e-5, gain_from=NEVER)
        torch.testing.assert_close(norm(x) @ norm.fold(matrix).T, expected @ matrix.T)


@pytest.mark.parametrize("rows", [1, PACKED_FROM, 9])
def test_a_packed_projection_and_its_norm_agree_on_who_holds_the_gain(rows: int) -> None:
    x, gain = torch.randn(rows, 16), torch.rand(16) + 0.5
    weight = torch.randn(24, 16).half().float()
    norm = Norm(gain, 1e-5, gain_from=gain_from(torch.float32, packed=True))
    projection = Projection(weight, norm=norm, packed=True)
    expected = torch.nn.functional.rms_norm(x, (16,), gain, 1e-5) @ weight.T
    torch.testing.assert_close(projection(norm(x)), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rotating_pairs_gives_the_scores_of_rotating_halves(dtype: torch.dtype) -> None:
    dim, rows = 8, 6
    weight_q, weight_k, x = (torch.randn(n, 16, dtype=torch.float64) for n in (dim, dim, rows))
    positions = torch.arange(rows) * 3
    table = Rope(RopeSpec(theta=50.0, max_position=32), dim, 32, torch.float64, CPU)
    turned = []
    for weight, turn in ((weight_q, table.queries[:, 0]), (weight_k, table.keys)):
        paired = (x @ pair_rows(weight, dim).T)[:, None].to(dtype)
        out = torch.empty_like(paired)
        if dtype == torch.float64:
            views = (torch.view_as_complex(t.view(rows, 1, -1, 2)) for t in (paired, out))
            rotate(next(views), turn[positions], torch.view_as_complex(out.view(rows, 1, -1, 2)))
        else:
            rotate(paired, turn[positions].to(torch.complex64), out)
        turned.append(out[:, 0].double())
    q, k = (half_split((x @ w.T)[:, None], positions, 50.0)[:, 0] for w in (weight_q, weight_k))
    tolerance = 1e-9 if dtype == torch.float64 else 0.3
    torch.testing.assert_close(
        turned[0] @ turned[1].T, q @ k.T * dim**-0.5, atol=tolerance, rtol=0.05
    )


def test_scratch_is_kept_for_decode_shapes_only() -> None:
    cache = ScratchCache(SHAPE, torch.float32, CPU)
    assert cache(2, 4) is cache(2, 4)
    large = cache(1, 200)
    assert cache(1, 200) is large
    cache(1, 201)
    assert cache(1, 200) is not large


def test_a_small_scratch_leaves_the_large_one_that_is_in_use() -> None:
    cache = ScratchCache(SHAPE, torch.float32, CPU)
    large = cache(1, ScratchCache.KEPT_ROWS + 9)
    cache(1, 1)
    assert cache(1, ScratchCache.KEPT_ROWS + 9) is large
    cache(1, ScratchCache.KEPT_ROWS + 10)
    assert cache(1, ScratchCache.KEPT_ROWS + 9) is not large
