"""A sweep from the command line beside a server that a stand-in for NVML gives a GPU."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path

import pytest

from specbench import cli
from tests.e2e.test_http import serving
from tests.fakes import FakeBackend
from tests.in_thread import in_thread
from tests.nvml_stand_in import NOT_SUPPORTED, Board, NvmlStandIn

WATTS = 300.0


def address() -> AbstractContextManager[str]:
    """Where a scripted server answers, in a thread of its own."""

    async def start(stack: AsyncExitStack) -> str:
        server = await stack.enter_async_context(serving(FakeBackend(delay_s=0.005)))
        return server.url

    return in_thread(start)


def sweep(out: Path, url: str, *more: str) -> dict[str, str]:
    """Three requests at one point; the row of summary.csv."""
    grid = ("--num-steps", "3", "--topk", "1", "--num-draft-tokens", "4", "--batch-size", "1")
    size = ("--requests", "3", "--blocks", "1", "--max-tokens", "9", "--warmup", "0")
    words = ["sweep", "--server", url, *grid, *size, "--out", str(out), *more]
    assert cli.main(words) == 0
    with (out / "summary.csv").open(encoding="utf-8", newline="") as file:
        return next(row for row in csv.DictReader(file) if row["category"] == "all")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> NvmlStandIn:
    missing = {"nvmlDeviceGetTotalEnergyConsumption": NOT_SUPPORTED}
    library = NvmlStandIn(Board(uuid="GPU-a", watts=WATTS, errors=missing))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return library


def test_power_energy_and_device_stand_in_what_the_run_leaves(
    tmp_path: Path, gpu: NvmlStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    with address() as url:
        row = sweep(tmp_path / "run", url, "--gpu-interval", "0.02")

    assert float(row["gpu_power_w"]) == pytest.approx(WATTS, rel=1e-4)
    joules = float(row["gpu_power_w"]) / float(row["output_tok_s"])
    assert float(row["energy_j_per_token"]) == pytest.approx(joules, rel=1e-4)
    assert {"gpu_assumed", "gpu_energy_from_power"} <= set(row["validity"].split(";"))
    assert (tmp_path / "run" / "gpu.csv").read_text().count("\n") > 2
    device = json.loads((tmp_path / "run" / "run.json").read_text())["provenance"]["device"]
    assert device["gpu_0"] == "NVIDIA H200"
    assert device["gpu_interval_s"] == "0.02"
    assert "the server is taken to use GPU 0" in " ".join(capsys.readouterr().out.split())
    assert gpu.inits == gpu.shutdowns == 1
