"""GPUs beside an engine over several ranks: all of them, or none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from specbench.backends.base import BackendFacts
from specbench.gpu_watch import Place
from tests import nvml_stand_in as stand_in
from tests.nvml_stand_in import Board, NvmlStandIn
from tests.unit.test_gpu_watch import CUDA, HERE, WATTS, boards, sweep, table, watched


def on_ranks(count: str) -> BackendFacts:
    return dataclasses.replace(CUDA, device={**CUDA.device, "tensor_parallel": count})


@pytest.mark.parametrize(
    ("named", "count", "labels"), [(None, "2", {"0", "1"}), ("2,0,1", "2", {"2", "0"})]
)
def test_an_engine_over_ranks_uses_a_gpu_for_each(
    named: str | None, count: str, labels: set[str]
) -> None:
    environ = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    with watched(boards(), Place(device="cuda"), on_ranks(count), environ) as seen:
        assert seen.labels == labels
        assert seen.codes == []
        assert {f"gpu_{label}" for label in labels} <= set(seen.watch.facts)


@pytest.mark.parametrize(("count", "says"), [("4", "each of 4 ranks"), ("?", "an unknown number")])
def test_a_part_of_the_ranks_is_never_taken_for_all(count: str, says: str) -> None:
    with watched(boards(), HERE, on_ranks(count)) as seen:
        assert seen.labels == set()
        assert seen.codes == ["gpu_not_sampled"]
        assert says in seen.told[0]


def test_the_energy_of_all_ranks_is_added_up(tmp_path: Path) -> None:
    missing = {"nvmlDeviceGetTotalEnergyConsumption": stand_in.NOT_SUPPORTED}
    two = NvmlStandIn(
        Board(uuid="GPU-a", watts=WATTS, errors=missing),
        Board(uuid="GPU-b", watts=200.0, errors=missing),
    )
    sweep(tmp_path / "run", two, facts=on_ranks("2"))
    for row in table(tmp_path / "run").values():
        assert float(row["gpu_power_w"]) == pytest.approx(WATTS + 200.0, rel=1e-4)
