"""Windows over the samples of one GPU."""

from __future__ import annotations

import pytest

from specbench.gpu_samples import GpuSample
from specbench.metrics.gpu_track import Track, tracks


def track(*points: tuple[int, float | None]) -> Track:
    return Track(GpuSample(at_ns=t, gpu="0", energy_j=j) for t, j in points)


@pytest.mark.parametrize(
    ("window", "joules"),
    [
        ((0, 30), 60.0),  # from the first sample to the last
        ((10, 20), 10.0),  # on samples
        ((5, 15), 10.0),  # between samples: half of 0..10 and half of 10..20
        ((12, 13), 1.0),  # inside one gap
        ((25, 25), 0.0),
        ((-1, 20), None),  # begins before the first
        ((10, 31), None),  # ends after the last
    ],
)
def test_energy_of_a_window(window: tuple[int, int], joules: float | None) -> None:
    found = track((0, 0.0), (10, 10.0), (20, 20.0), (30, 60.0)).energy_j(window)
    assert found == (None if joules is None else pytest.approx(joules))


def test_order_of_samples_does_not_matter_and_holes_are_bridged() -> None:
    assert track((20, 30.0), (0, 0.0), (10, None)).energy_j((0, 10)) == 15.0


def test_without_sums_there_is_no_energy() -> None:
    assert track((0, None), (10, None)).energy_j((0, 10)) is None
    assert track((0, 1.0)).energy_j((0, 0)) == 0.0


def test_a_sample_belongs_to_the_time_before_it() -> None:
    found = track((0, None), (10, None), (20, None), (30, None)).inside((10, 30))
    assert [sample.at_ns for sample in found] == [20, 30]


def test_each_gpu_has_its_track() -> None:
    found = tracks([GpuSample(at_ns=t, gpu=g) for t in (1, 2) for g in ("0", "0:mig1")])
    assert {gpu: its.is_instance for gpu, its in found.items()} == {"0": False, "0:mig1": True}
    assert len(found["0"].inside((0, 9))) == 2
