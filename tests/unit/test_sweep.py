"""Sweeps: the order of blocks, saving, resuming, cancelling."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specbench.backends.base import BackendFacts
from specbench.collectors import text
from specbench.collectors.live import Recorder
from specbench.conclude import read_caveats
from specbench.config import EngineConfig
from specbench.errors import ConfigError, UnreachableError, WorkloadError
from specbench.prompts.prompt import Prompt
from specbench.provenance import collect
from specbench.store import RunDir
from specbench.sweep import Job, describe, plan_jobs, run_sweep
from specbench.sweep_spec import SweepSpec
from specbench.trace import ArmRun
from specbench.verification import Verification
from specbench.workload import Workload
from tests.fakes import FakeBackend

SPEC = SweepSpec(
    num_steps=(0, 1, 3),
    topk=(1, 2),
    num_draft_tokens=(8,),
    batch_sizes=(1, 2),
    requests=6,
    blocks=3,
    max_tokens=9,
)


def workload_of(name: str = "w", prompts: int = 6) -> Workload:
    return Workload(
        name=name,
        sha256="0" * 64,
        prompts=tuple(
            Prompt(prompt_id=f"p{i}", category=("code", "prose")[i % 2], turns=(f"say {i}",))
            for i in range(prompts)
        ),
    )


class Watcher:
    """Counts; cancels the sweep after ``stop_after`` blocks."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.scale: tuple[int, int] | None = None
        self.keys: list[Any] = []
        self._stop_after = stop_after

    def started(self, jobs: int, done: int) -> None:
        self.scale = (jobs, done)

    def saved(self, job: Job, arm: ArmRun) -> None:
        self.keys.append(job.key)
        if len(self.keys) == self._stop_after:
            raise KeyboardInterrupt


def _run_json(spec: SweepSpec) -> dict[str, Any]:
    return describe(spec, spec.grid()) | {"provenance": collect(("specbench",))}


def _sweep(
    run_dir: RunDir,
    watcher: Watcher,
    backend: FakeBackend | None = None,
    recorder: Recorder | None = None,
    spec: SweepSpec = SPEC,
) -> None:
    asyncio.run(
        run_sweep(
            spec,
            backend=backend or FakeBackend(),
            points=spec.grid().points,
            workloads=[workload_of()],
            run_dir=run_dir,
            observer=watcher,
            recorder=recorder,
        )
    )


def _counts(path: Path) -> dict[Any, Any]:
    """Everything that a resumed run must share with an undisturbed one (semantics.md 13)."""
    with RunDir.open(path) as run_dir:
        return {
            (arm.point_id, arm.batch_size, arm.block): [
                (
                    trace.request.prompt_id,
                    trace.output_ids,
                    [(s.drafted, s.accepted, s.emitted) for s in trace.steps],
                )
                for trace in arm.requests
            ]
            for arm in run_dir.iter_runs()
        }


def test_arms_of_a_cell_take_turns_and_none_always_goes_first() -> None:
    jobs = plan_jobs(SPEC, SPEC.grid().points, [workload_of()])

    assert len(jobs) == 4 * 2 * 3  # base, k1, k3, k3b2n8 at two batch sizes in three blocks
    first = [j for j in jobs if j.batch_size == 1]
    assert [j.block for j in first] == [0] * 4 + [1] * 4 + [2] * 4
    leaders = [first[i].point.point_id for i in (0, 4, 8)]
    assert len(set(leaders)) == 3


@pytest.mark.parametrize(
    ("waves", "batch_size", "blocks"), [(0, 8, 10), (2, 1, 10), (2, 2, 5), (2, 4, 2), (2, 64, 1)]
)
def test_blocks_are_short_but_fill_the_batch(waves: int, batch_size: int, blocks: int) -> None:
    spec = dataclasses.replace(SPEC, requests=20, blocks=10, waves=waves, batch_sizes=(batch_size,))
    assert spec.blocks_at(batch_size) == blocks
    jobs = plan_jobs(spec, spec.grid().points[:2], [workload_of(prompts=20)])
    assert len({job.block for job in jobs}) == blocks
    for point in spec.grid().points[:2]:
        asked = [r.request_id for job in jobs if job.point == point for r in job.requests]
        assert len(set(asked)) == len(asked) == 20


def test_a_way_to_check_drafts_that_nothing_uses_is_said(tmp_path: Path) -> None:
    rules = EngineConfig(verification=Verification.ONE_HOT)
    spec = dataclasses.replace(SPEC, engine=rules, topk=(1,), batch_sizes=(1,), num_steps=(0,))
    (said,) = spec.caveats
    assert said.code == "verification_unused"
    assert "one_hot decides nothing" in said.text
    assert dataclasses.replace(spec, temperatures=(0.0, 0.7)).caveats == ()
    assert SPEC.caveats == ()
    with RunDir.create(tmp_path / "run", _run_json(spec)) as run:
        _sweep(run, Watcher(), spec=spec)
        assert read_caveats(run) == {"": (said,)}


def test_every_arm_is_asked_the_same_prompts_in_the_same_blocks() -> None:
    jobs = plan_jobs(SPEC, SPEC.grid().points, [workload_of()])

    by_block: dict[int, set[tuple[Any, ...]]] = {}
    for job in jobs:
        by_block.setdefault(job.block, set()).add(job.requests)
    assert {len(asked) for asked in by_block.values()} == {1}
    prompts = Counter(r.prompt_id for asked in by_block.values() for r in next(iter(asked)))
    assert prompts == Counter(f"p{i}" for i in range(6))


def test_two_workloads_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="repeat a name"):
        plan_jobs(SPEC, SPEC.grid().points, [workload_of(), workload_of()])


def test_more_requests_than_prompts_are_refused_before_anything_runs() -> None:
    with pytest.raises(WorkloadError, match="6 requests asked"):
        plan_jobs(SPEC, SPEC.grid().points, [workload_of(prompts=3)])


def test_an_interrupted_sweep_keeps_whole_blocks_and_resumes_to_the_same_counts(
    tmp_path: Path,
) -> None:
    with RunDir.create(tmp_path / "whole", _run_json(SPEC)) as run_dir:
        _sweep(run_dir, Watcher())
        run_dir.finish()
    broken = Watcher(stop_after=5)
    with (
        RunDir.create(tmp_path / "cut", _run_json(SPEC)) as run_dir,
        pytest.raises(KeyboardInterrupt),
    ):
        _sweep(run_dir, broken)
    rest = Watcher()
    with RunDir.resume(tmp_path / "cut", _run_json(SPEC)) as run_dir:
        _sweep(run_dir, rest)
        run_dir.finish()

    assert broken.scale == (24, 0)
    assert rest.scale == (24, 5)
    assert len(rest.keys) == 19
    assert not set(rest.keys) & set(broken.keys)
    assert _counts(tmp_path / "cut") == _counts(tmp_path / "whole")
    assert len(_counts(tmp_path / "cut")) == 24


def test_points_are_configured_at_their_batch_size_and_warmed_up_once(tmp_path: Path) -> None:
    backend = FakeBackend()
    with RunDir.create(tmp_path / "run", _run_json(SPEC)) as run_dir:
        _sweep(run_dir, Watcher(), backend)

    assert {(spec.point_id, size) for spec, size in backend.points} == {
        (point.point_id, size) for point in SPEC.grid().points for size in (1, 2)
    }
    warmups = [r for r in backend.sent if r.request_id.startswith("warmup")]
    assert len(warmups) == 8
    assert len(backend.sent) == 8 + 24 * 2
    assert backend.most_in_flight == 2


def test_every_arm_is_warmed_up_on_its_own_workload_and_temperature(tmp_path: Path) -> None:
    backend = FakeBackend()
    spec = dataclasses.replace(SPEC, temperatures=(0.0, 0.7), batch_sizes=(1,), num_steps=(0, 1))
    with RunDir.create(tmp_path / "run", _run_json(spec)) as run_dir:
        asyncio.run(
            run_sweep(
                spec,
                backend=backend,
                points=spec.grid().points,
                workloads=[workload_of("v"), workload_of("w")],
                run_dir=run_dir,
                observer=Watcher(),
            )
        )
    warmups = [r for r in backend.sent if r.request_id.startswith("warmup")]
    seen = Counter((r.workload, r.sampling.temperature) for r in warmups)
    assert seen == dict.fromkeys(itertools.product("vw", (0.0, 0.7)), 2)


def _counted(recorder: Recorder) -> dict[tuple[str, str], float]:
    """Counters by name and point."""
    page = text.page(recorder.families(), openmetrics=False).decode()
    return {
        (sample.name, sample.labels.get("point", "")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_counters_are_the_measured_blocks_of_this_process(tmp_path: Path) -> None:
    labels = ("run_id", "version", "backend", "target", "draft")
    first, second = (Recorder(dict.fromkeys(labels, "x")) for _ in range(2))
    with (
        RunDir.create(tmp_path / "run", _run_json(SPEC)) as run_dir,
        pytest.raises(KeyboardInterrupt),
    ):
        _sweep(run_dir, Watcher(stop_after=5), recorder=first)
    with RunDir.resume(tmp_path / "run", _run_json(SPEC)) as run_dir:
        _sweep(run_dir, Watcher(), recorder=second)

    before, after = _counted(first), _counted(second)
    assert after["specbench_sweep_blocks", ""] == after["specbench_sweep_blocks_saved", ""] == 24
    with RunDir.open(tmp_path / "run") as run_dir:
        steps: Counter[str] = Counter()
        for arm in run_dir.iter_runs():
            steps[f"{arm.point_id}.bs{arm.batch_size}"] += sum(len(t.steps) for t in arm.requests)
    name = "specbench_verify_steps_total"
    assert {point: before[name, point] + after[name, point] for point in steps} == steps
    assert sum(before[name, point] for point in steps) > 0


def test_no_new_tokens_are_not_the_workloads_default() -> None:
    spec = dataclasses.replace(SPEC, max_tokens=0)
    with pytest.raises(ConfigError, match="max_tokens=0"):
        plan_jobs(spec, spec.grid().points, [workload_of(prompts=6)])


def test_a_block_in_which_the_server_went_away_is_not_saved(tmp_path: Path) -> None:
    class Gone(FakeBackend):
        async def open(self) -> BackendFacts:
            raise UnreachableError("Nothing answers.")

    backend = Gone(fails={f"p{i}#0": UnreachableError("Nothing answers.") for i in range(6)})
    with (
        RunDir.create(tmp_path / "run", _run_json(SPEC)) as run_dir,
        pytest.raises(UnreachableError),
    ):
        _sweep(run_dir, Watcher(), backend)
    assert not RunDir.open(tmp_path / "run").blocks()
