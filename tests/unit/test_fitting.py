"""Workloads and servers against what a sweep asks: what is refused, left out and said."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from specbench.config import Arrival, LoadConfig, SpecConfig
from specbench.errors import CheckpointError, ConfigError, UsageError
from specbench.fitting import arrival_notes, check_models, fit_grid, with_workloads
from specbench.prompts.prompt import Prompt
from specbench.provenance import collect
from specbench.store import RunDir
from specbench.sweep import Job, describe, plan_jobs, run_sweep
from specbench.sweep_spec import SweepSpec
from specbench.trace import ArmRun
from specbench.workload import Workload
from tests.fakes import FakeBackend

SPEC = SweepSpec(num_steps=(0, 1, 3), topk=(1, 2), num_draft_tokens=(8,), requests=6, blocks=3)
TRACE = dataclasses.replace(
    SPEC, load=LoadConfig(arrival=Arrival.TRACE), requests=4, blocks=2, batch_sizes=(1,)
)


def workload_of(*due_s: float | None, name: str = "w") -> Workload:
    """A prompt for each of ``due_s``, which may be its arrival."""
    prompts = tuple(
        Prompt(prompt_id=f"p{i}", category="trace", turns=(f"say {i}",), due_s=at)
        for i, at in enumerate(due_s)
    )
    return Workload(name=name, sha256="0" * 64, prompts=prompts)


UNTIMED = workload_of(*[None] * 6, name="v")


def test_a_timed_trace_is_sent_at_its_own_times() -> None:
    """Arrivals in another order than the prompts, six of which four are asked for."""
    workload = workload_of(7.0, 2.0, 3.5, 2.25, 100.0, 200.0)
    spec = with_workloads(TRACE, [workload])
    assert spec.load.request_rate == 3 / 5
    assert spec.load.open_loop
    assert spec.as_asked == TRACE
    (note,) = arrival_notes(spec, [workload])
    assert "without --blocks the trace stays in one piece" in note
    (note,) = arrival_notes(dataclasses.replace(spec, blocks=1), [workload])
    assert "each arm goes through it in one piece" in note
    jobs = plan_jobs(spec, spec.grid().points, [workload])
    blocks = {(job.block, tuple(r.prompt_id for r in job.requests), job.due_ns) for job in jobs}
    assert blocks == {(0, ("p1", "p3"), (0, 250_000_000)), (1, ("p2", "p0"), (0, 3_500_000_000))}
    assert len(jobs) == 2 * len(spec.grid().points)


def test_times_of_a_trace_that_are_not_kept_are_said() -> None:
    workload = workload_of(*range(6))
    assert with_workloads(SPEC, [workload]) == SPEC
    assert arrival_notes(SPEC, [workload, UNTIMED]) == (
        "w: its arrival times are left out (--arrival trace keeps them)",
    )
    assert {job.due_ns for job in plan_jobs(SPEC, SPEC.grid().points, [workload])} == {()}


@pytest.mark.parametrize(
    ("requests", "blocks", "says"),
    [
        (20, 10, "in 10 blocks of 2 requests an arm"),
        (8, 3, "in 3 blocks of 2 or 3 requests an arm"),
        (20, 1, "each arm gets its requests in one piece"),
    ],
)
def test_an_open_loop_says_how_many_requests_can_queue(
    requests: int, blocks: int, says: str
) -> None:
    load = LoadConfig(request_rate=5.0)
    spec = dataclasses.replace(SPEC, requests=requests, blocks=blocks, load=load)
    (note,) = arrival_notes(spec, [UNTIMED])
    assert says in note
    assert ("--blocks 1" in note) is (blocks > 1)
    (_, left_out) = arrival_notes(spec, [workload_of(*range(6))])
    assert "its arrival times are left out" in left_out


@pytest.mark.parametrize("name", ["target", "draft"])
def test_a_model_that_is_no_folder_is_refused_before_anything_is_begun(
    name: str, tmp_path: Path
) -> None:
    there = dataclasses.replace(SPEC, target=str(tmp_path), draft=str(tmp_path))
    check_models(there)
    check_models(SPEC)
    missing: dict[str, Any] = {name: "org/a-model"}
    spec = dataclasses.replace(there, **missing)
    with pytest.raises(CheckpointError, match="hf download org/a-model --local-dir DIR"):
        check_models(spec)


@pytest.mark.parametrize(
    ("workloads", "says"),
    [
        ([UNTIMED], "no arrivals"),
        ([workload_of(0, 0, 0, 0, 5)], "the first 4 requests arrive all at once"),
        ([workload_of(0, 1), UNTIMED], "--arrival trace with 2 workloads"),
    ],
)
def test_what_is_no_timed_trace_cannot_be_sent_as_one(workloads: list[Workload], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        with_workloads(TRACE, workloads)


class Quiet:
    """Watches a sweep and says nothing."""

    def started(self, jobs: int, done: int) -> None:
        pass

    def saved(self, job: Job, arm: ArmRun) -> None:
        pass


def test_requests_of_a_trace_are_due_at_its_times(tmp_path: Path) -> None:
    workload = workload_of(0, 0.02, 0.03, 0.07)
    spec = dataclasses.replace(with_workloads(TRACE, [workload]), blocks=1, num_steps=(0,))
    run_json = describe(spec, spec.grid()) | {"provenance": collect(("specbench",))}
    with RunDir.create(tmp_path / "run", run_json) as run_dir:
        asyncio.run(
            run_sweep(
                spec,
                backend=FakeBackend(),
                points=spec.grid().points,
                workloads=[workload],
                run_dir=run_dir,
                observer=Quiet(),
            )
        )
        (arm,) = run_dir.iter_runs()
    due = [trace.due_ns - arm.requests[0].due_ns for trace in arm.requests]
    assert due == [0, 20_000_000, 30_000_000, 70_000_000]
    assert all(trace.sent_ns >= trace.due_ns for trace in arm.requests)


def _unheard(text: str) -> None:
    del text


class OnlyK3(FakeBackend):
    """A backend of a server that runs k3 and nothing else."""

    def refused(self, asked: Sequence[SpecConfig]) -> Mapping[SpecConfig, str]:
        return {spec: "it runs k3" for spec in asked if spec != SpecConfig.chain(3)}


def test_of_a_grid_a_fixed_server_runs_what_it_runs_and_the_rest_is_dropped() -> None:
    told: list[str] = []
    grid = fit_grid(SPEC, SPEC.grid(), OnlyK3(), told.append)
    assert [point.point_id for point in grid.points] == ["k3"]
    assert [gone.num_steps for gone in grid.dropped if gone.reason == "it runs k3"] == [0, 1, 3]
    assert told == [
        "no plain decoding is measured, so there will be no speedup: it runs k3; name one that "
        "does not speculate by --baseline-server",
        "left out 2 of the points asked: it runs k3",
    ]
    points = describe(SPEC, grid)["points"]
    assert list(points) == ["k3"]


def test_a_server_that_switches_points_runs_the_whole_grid() -> None:
    told: list[str] = []
    assert fit_grid(SPEC, SPEC.grid(), FakeBackend(), told.append) == SPEC.grid()
    assert told == []


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"num_steps": (0, 1)}, "No point that was asked can be measured: it runs k3"),
        ({"noise_floor": True}, "--noise-floor measures plain decoding twice, but it runs k3"),
    ],
)
def test_what_a_fixed_server_cannot_do_at_all_is_refused(asked: dict[str, Any], says: str) -> None:
    spec = dataclasses.replace(SPEC, topk=(1,), **asked)
    with pytest.raises(ConfigError, match=says):
        fit_grid(spec, spec.grid(), OnlyK3(), _unheard)


def test_plain_decoding_alone_is_no_answer_to_a_question_about_drafts() -> None:
    class OnlyPlain(FakeBackend):
        def refused(self, asked: Sequence[SpecConfig]) -> Mapping[SpecConfig, str]:
            return {spec: "it does not speculate" for spec in asked if not spec.is_baseline}

    spec = dataclasses.replace(SPEC, num_steps=(3,))
    with pytest.raises(ConfigError, match="it does not speculate"):
        fit_grid(spec, spec.grid(), OnlyPlain(), _unheard)
    with_plain = dataclasses.replace(SPEC, num_steps=(0, 3))
    grid = fit_grid(with_plain, with_plain.grid(), OnlyPlain(), _unheard)
    assert [point.point_id for point in grid.points] == ["base"]
