"""CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import pytest

from specbench.collectors.nvml import Gpu
from specbench.collectors.visible import order_is_a_guess, visible


def gpu(label: str, uuid: str, name: str = "H200", *parts: Gpu) -> Gpu:
    return Gpu(label=label, uuid=uuid, name=name, handle=None, mig=bool(parts), instances=parts)


PARTS = (gpu("2:mig0", "MIG-aa11"), gpu("2:mig1", "MIG-bb22"))
MACHINE = (
    gpu("0", "GPU-aa00"),
    gpu("1", "GPU-aa11"),
    gpu("2", "GPU-cc22", "H200", *PARTS),
)


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (None, ["0", "1", "2:mig0", "2:mig1"]),
        ("", []),
        ("-1", []),
        ("1", ["1"]),
        ("1,0", ["1", "0"]),
        (" 1 , 0 ", ["1", "0"]),
        ("0,9,1", ["0"]),
        ("0,x,1", ["0"]),
        ("0,-1,1", ["0"]),
        ("1,1", []),
        ("2", ["2:mig0", "2:mig1"]),
        ("GPU-aa11,GPU-aa00", ["1", "0"]),
        ("GPU-aa", []),  # two begin like this
        ("GPU-cc", ["2:mig0", "2:mig1"]),
        ("MIG-bb22", ["2:mig1"]),
        ("MIG-bb", ["2:mig1"]),
        ("MIG-zz", []),
    ],
)
def test_what_a_process_sees(value: str | None, labels: list[str]) -> None:
    assert [gpu.label for gpu in visible(MACHINE, value)] == labels


def test_a_gpu_in_mig_mode_without_instances_is_not_seen() -> None:
    bare = Gpu(label="0", uuid="GPU-a", name="H200", handle=None, mig=True)
    assert visible((bare,), None) == visible((bare,), "0") == ()


def test_numbering_is_a_guess_only_between_models_named_by_index() -> None:
    mixed = (gpu("0", "GPU-a", "T4"), gpu("1", "GPU-b", "H200"))
    assert order_is_a_guess(mixed, None, None)
    assert order_is_a_guess(mixed, "1", "FASTEST_FIRST")
    assert not order_is_a_guess(mixed, "1", "PCI_BUS_ID")
    assert not order_is_a_guess(mixed, "GPU-b", None)
    assert not order_is_a_guess(MACHINE, None, None)
