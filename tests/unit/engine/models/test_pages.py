"""Moving weights changes where they are and nothing else."""

from __future__ import annotations

import errno

import pytest
import torch

from specbench.engine.models.layers import Projection
from specbench.engine.models.pages import PAGE, to_huge_pages


def test_products_stay_the_same() -> None:
    projections = [Projection(torch.randn(*size)) for size in ((24, 16), (16, 24), (700, 300))]
    inputs = [torch.randn(2, p.matrix.shape[0]) for p in projections]
    before = [p(x) for p, x in zip(projections, inputs, strict=True)]
    strides = [p.matrix.stride() for p in projections]
    if not to_huge_pages(projections):
        pytest.skip("this system has no transparent huge pages")
    for projection, x, expected in zip(projections, inputs, before, strict=True):
        assert torch.equal(projection(x), expected)
        assert projection.matrix.data_ptr() % PAGE == 0
    assert [p.matrix.stride() for p in projections] == strides


def test_a_system_without_them_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("mmap.MADV_HUGEPAGE", raising=False)
    projection = Projection(torch.randn(4, 4))
    address = projection.matrix.data_ptr()
    assert not to_huge_pages([projection])
    assert projection.matrix.data_ptr() == address


def test_a_system_without_room_for_them_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", refused)
    assert not to_huge_pages([Projection(torch.randn(4, 4))])
