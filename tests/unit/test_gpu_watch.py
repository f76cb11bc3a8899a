"""GPUs beside a run: which are sampled, and what the run directory and the summary say."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from specbench.backends.base import BackendFacts
from specbench.conclude import facts_json, gpu_samples_of, read_caveats, summary_input
from specbench.gpu_samples import FILE
from specbench.gpu_watch import GpuWatch, Place, watch_gpus
from specbench.metrics.rows import rows
from specbench.metrics.summary import summarise
from specbench.prompts.prompt import Prompt
from specbench.provenance import collect
from specbench.report.tables import summary_csv_text
from specbench.store import RunDir
from specbench.sweep import Job, describe, run_sweep
from specbench.sweep_spec import SweepSpec
from specbench.trace import ArmRun
from specbench.workload import Workload
from tests import nvml_stand_in as stand_in
from tests.fakes import FakeBackend
from tests.nvml_stand_in import Board, NvmlStandIn, instance

CUDA = BackendFacts(
    backend="fake", target="t", draft="d", device={"compute_capability": "sm_90", "device": "H200"}
)
CPU = BackendFacts(backend="fake", target="t", draft="d", device={"compute_capability": "cpu"})
HERE = Place()
WATTS = 500.0


class Watched:
    """A watch with what it told."""

    def __init__(self, watch: GpuWatch, told: list[str]) -> None:
        self.watch, self.told = watch, told
        self.labels = {sample.gpu for sample in watch.take()}
        self.codes = [caveat.code for caveat in watch.caveats]


@contextlib.contextmanager
def watched(
    library: NvmlStandIn,
    place: Place = HERE,
    facts: BackendFacts = CUDA,
    environ: Mapping[str, str] | None = None,
    **more: Any,
) -> Iterator[Watched]:
    told: list[str] = []
    with watch_gpus(
        place, facts, tell=told.append, library=library, environ=environ or {}, **more
    ) as watch:
        yield Watched(watch, told)
    assert library.inits == library.shutdowns


def boards() -> NvmlStandIn:
    return NvmlStandIn(Board(uuid="GPU-a"), Board(uuid="GPU-b"), Board(uuid="GPU-c"))


@pytest.mark.parametrize(
    ("device", "named", "label"),
    [
        ("auto", None, "0"),
        ("cuda", None, "0"),
        ("cuda:1", None, "1"),
        ("cuda", "2,1", "2"),
        ("cuda:1", "2,1", "1"),
        ("cuda:1", "GPU-c,GPU-a", "0"),
    ],
)
def test_the_engine_uses_one_gpu_in_cudas_numbering(
    device: str, named: str | None, label: str
) -> None:
    environ = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    with watched(boards(), Place(device=device), environ=environ) as seen:
        assert seen.labels == {label}
        assert seen.told == seen.codes == []
        assert seen.watch.series is not None
        assert seen.watch.facts == {
            "gpu_driver": "570.00.01",
            "gpu_interval_s": "0.2",
            f"gpu_{label}": "NVIDIA H200",
            f"gpu_{label}_sm_clock_max_mhz": "1980",
            f"gpu_{label}_sm_clock_application_mhz": "1980",
        }


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:1"]
)
def test_a_server_on_this_machine_is_taken_to_use_what_is_visible(server: str) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0,2"}
    with watched(boards(), Place(server=server), CPU, environ) as seen:
        assert seen.labels == {"0", "2"}
        assert seen.codes == ["gpu_assumed"]
        assert "GPU 0, 2" in seen.told[0]


@pytest.mark.parametrize(
    ("place", "facts", "more"),
    [
        (HERE, CPU, {}),
        (HERE, CUDA, {"interval_s": 0}),
        (Place(server="http://10.0.0.7:8000"), CUDA, {}),
        (Place(server="http://gpu-box:8000"), CUDA, {}),
    ],
)
def test_where_no_gpu_of_this_machine_is_used_none_is_touched(
    place: Place, facts: BackendFacts, more: dict[str, Any]
) -> None:
    library = boards()
    with watched(library, place, facts, **more) as seen:
        assert seen.labels == set()
        assert seen.told == seen.codes == []
        assert seen.watch.series is None
        assert seen.watch.facts == {}
    assert library.inits == 0


def test_cuda_without_nvml_says_so_once() -> None:
    with watched(NvmlStandIn(init_error=stand_in.LIBRARY_NOT_FOUND)) as seen:
        assert seen.codes == ["gpu_not_sampled"]
        assert seen.told == [
            "GPUs are not sampled, their figures stay empty: NVML: NVML Shared Library Not Found"
        ]


@pytest.mark.parametrize(
    ("code", "said"), [(stand_in.DRIVER_NOT_LOADED, False), (stand_in.VERSION_MISMATCH, True)]
)
def test_beside_a_server_only_a_broken_nvml_is_worth_a_word(code: int, said: bool) -> None:
    with watched(NvmlStandIn(init_error=code), Place(server="http://127.0.0.1:1"), CPU) as seen:
        assert bool(seen.told) is bool(seen.codes) is said


def test_a_device_that_nvml_does_not_know_is_said() -> None:
    with watched(boards(), Place(device="cuda:3")) as seen:
        assert seen.codes == ["gpu_not_sampled"]
        assert "'cuda:3'" in seen.told[0]


def test_doubts_about_what_is_sampled_are_said() -> None:
    mixed = NvmlStandIn(Board(uuid="GPU-a", name="T4"), Board(uuid="GPU-b"))
    with watched(mixed) as seen:
        assert seen.codes == ["gpu_by_index"]
    mig = NvmlStandIn(Board(uuid="GPU-a", mig=(instance("MIG-x"), instance("MIG-y"))))
    with watched(mig, environ={"CUDA_VISIBLE_DEVICES": "MIG-y"}) as seen:
        assert seen.codes == ["gpu_shared"]
        assert seen.labels == {"0", "0:mig1"}
        assert seen.watch.facts["gpu_0"] == "NVIDIA H200, NVIDIA H200 MIG 1g.18gb"


SPEC = SweepSpec(
    num_steps=(0, 3), topk=(1,), num_draft_tokens=(4,), requests=6, blocks=2, max_tokens=9
)


class Break:
    """An observer that does something to the GPU after ``blocks`` blocks."""

    def __init__(self, board: Board, blocks: int) -> None:
        self._board, self._left = board, blocks

    def started(self, jobs: int, done: int) -> None:
        pass

    def saved(self, job: Job, arm: ArmRun) -> None:
        self._left -= 1
        self._board.lost = self._left == 0 or self._board.lost


def steady(**more: Any) -> NvmlStandIn:
    """A GPU without an energy counter: power over time is exact, whenever the samples come."""
    missing = {"nvmlDeviceGetTotalEnergyConsumption": stand_in.NOT_SUPPORTED}
    return NvmlStandIn(Board(uuid="GPU-a", watts=WATTS, errors=missing, **more))


def sweep(
    path: Path, library: NvmlStandIn, blocks: int = 99, facts: BackendFacts = CUDA
) -> list[str]:
    """Four blocks of a scripted backend beside a GPU; its messages."""
    told: list[str] = []
    prompts = tuple(Prompt(prompt_id=f"p{i}", category="c", turns=(f"say {i}",)) for i in range(6))
    run_json = describe(SPEC, SPEC.grid()) | {
        "facts": facts_json(CUDA),
        "provenance": collect(("specbench", "sweep")),
    }
    with (
        watch_gpus(
            HERE, facts, interval_s=0.02, tell=told.append, library=library, environ={}
        ) as gpus,
        RunDir.create(path, run_json) as run_dir,
    ):
        asyncio.run(
            run_sweep(
                SPEC,
                backend=FakeBackend(delay_s=0.01),
                points=SPEC.grid().points,
                workloads=[Workload(name="w", prompts=prompts, sha256="0" * 64)],
                run_dir=run_dir,
                observer=Break(library.boards[0], blocks),
                gpus=gpus,
            )
        )
        run_dir.finish()
    return told


def table(path: Path) -> dict[str, dict[str, str]]:
    """The rows of summary.csv, without the plots that take so long."""
    with RunDir.open(path) as run_dir:
        text = summary_csv_text(rows(summarise(summary_input(run_dir))))
    found = csv.DictReader(io.StringIO(text))
    return {row["point_id"]: row for row in found if row["category"] == "all"}


def test_a_sweep_joins_samples_to_its_blocks_and_the_energy_is_right(tmp_path: Path) -> None:
    told = sweep(tmp_path / "run", steady(reasons=0x4))

    with RunDir.open(tmp_path / "run") as run_dir:
        runs = run_dir.load_runs()
        found = gpu_samples_of(run_dir, runs)
    assert told == []
    assert len(found) == len(runs) == 4
    for (key, block), samples in found.items():
        (run,) = [r for r in runs if r.point_id == key.point_id and r.block == block]
        assert samples[0].at_ns <= run.started_ns
        assert samples[-1].at_ns >= run.started_ns + run.wall_ns

    found_rows = table(tmp_path / "run")
    for row in found_rows.values():
        watts = float(row["gpu_power_w"])
        assert watts == pytest.approx(WATTS, rel=1e-4)
        assert float(row["energy_j_per_token"]) == pytest.approx(
            watts / float(row["output_tok_s"]), rel=1e-4
        )
        assert float(row["gpu_util_pct"]) == 90
        assert {"gpu_throttled", "gpu_energy_from_power"} <= set(row["validity"].split(";"))
    spec = found_rows["k3"]
    accepted = int(spec["verify_steps"]) * (float(spec["accept_length"]) - 1)
    assert float(spec["energy_j_per_accepted"]) * accepted == pytest.approx(
        float(spec["energy_j_per_token"]) * int(spec["output_tokens"]), rel=1e-4
    )
    assert found_rows["base"]["energy_j_per_accepted"] == ""


def test_a_gpu_lost_in_the_middle_costs_one_message_and_a_caveat(tmp_path: Path) -> None:
    told = sweep(tmp_path / "run", steady(), blocks=2)

    assert told == ["GPU 0 is lost (GPU is lost): its figures end here"]
    with RunDir.open(tmp_path / "run") as run_dir:
        assert len(run_dir.blocks()) == 4
        assert [c.code for c in read_caveats(run_dir)[""]] == ["gpu_lost"]
    for row in table(tmp_path / "run").values():  # the first block of each arm is whole
        assert float(row["gpu_power_w"]) == pytest.approx(WATTS, rel=1e-4)
        assert {"gpu_lost", "gpu_energy_partial"} <= set(row["validity"].split(";"))


def test_without_its_file_or_its_last_lines_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run"
    sweep(path, steady())
    whole = (path / FILE).read_text()

    (path / FILE).write_text(whole + "4,123")  # killed while it wrote
    assert all(row["energy_j_per_token"] for row in table(path).values())

    (path / FILE).unlink()
    empty = table(path)
    assert all(row["energy_j_per_token"] == "" for row in empty.values())
    assert "energy_j_per_accepted" not in empty["k3"]


def test_a_watch_without_gpus_leaves_no_file(tmp_path: Path) -> None:
    run_json = describe(SPEC, SPEC.grid()) | {"provenance": collect(("specbench",))}
    with RunDir.create(tmp_path / "run", run_json) as run_dir:
        watch = GpuWatch()
        watch.save(run_dir, watch.take())
        assert read_caveats(run_dir) == {}
    assert not (tmp_path / "run" / FILE).exists()


def test_leaving_the_watch_stops_the_thread_at_once() -> None:
    with watched(boards(), interval_s=60.0) as seen:
        assert seen.labels == {"0"}
        assert "gpu-sampler" in {thread.name for thread in threading.enumerate()}
    assert "gpu-sampler" not in {thread.name for thread in threading.enumerate()}
