"""All arms of a process, and what belongs to none."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specbench.collectors import catalogue as c
from specbench.collectors import text
from specbench.collectors.live import EngineState, Recorder
from specbench.collectors.points import Cell
from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.trace import StepTrace

RUN = {"run_id": "r", "version": "1", "backend": "b", "target": "t", "draft": ""}
BASE, K3 = (Cell(spec=SpecConfig.chain(k), batch_size=1) for k in (0, 3))


def samples(recorder: Recorder) -> dict[tuple[str, str], float]:
    """Values by name and point."""
    page = text.page(recorder.families(), openmetrics=False).decode()
    return {
        (sample.name, sample.labels.get("point", "")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def one_step(accepted: int) -> StepTrace:
    return StepTrace(
        batch_step=0, batch=1, committed=1, drafted=3, depth=3, accepted=accepted, emitted=1
    )


def test_planned_points_are_there_at_0_before_they_run() -> None:
    recorder = Recorder(RUN)
    recorder.plan([BASE, K3, BASE, K3], saved=1)
    found = samples(recorder)
    for point in ("base.bs1", "k3.bs1"):
        assert found["specbench_verify_steps_total", point] == 0
        assert found["specbench_point_info", point] == 1
    assert found["specbench_sweep_blocks", ""] == 4
    assert found["specbench_sweep_blocks_saved", ""] == 1
    assert found["specbench_run_info", ""] == 1


def test_each_arm_counts_its_own() -> None:
    recorder = Recorder(RUN)
    recorder.plan([BASE, K3], saved=0)
    recorder.begin(K3).step(one_step(2))
    recorder.begin(K3).step(one_step(1))
    recorder.block_saved()
    found = samples(recorder)
    assert found["specbench_verify_steps_total", "k3.bs1"] == 2
    assert found["specbench_verify_steps_total", "base.bs1"] == 0
    assert found["specbench_sweep_blocks_saved", ""] == 1


def test_a_point_that_comes_later_leaves_the_labels_that_are_out() -> None:
    recorder = Recorder(RUN)
    recorder.begin(Cell(spec=SpecConfig.chain(3), batch_size=1, temperature=0.0)).step(one_step(1))
    recorder.begin(Cell(spec=SpecConfig.chain(3), batch_size=1, temperature=0.7))
    found = samples(recorder)
    assert found["specbench_verify_steps_total", "k3.bs1"] == 1
    assert found["specbench_verify_steps_total", "k3.bs1.t0.7"] == 0


def test_one_point_too_many_is_refused_and_the_others_go_on() -> None:
    recorder = Recorder(RUN)
    cells = [Cell(spec=SpecConfig.chain(3), batch_size=i + 1) for i in range(c.MOST_POINTS)]
    recorder.register(cells)
    with pytest.raises(ConfigError, match="501 points"):
        recorder.begin(BASE)
    recorder.begin(cells[0]).step(one_step(0))
    assert samples(recorder)["specbench_verify_steps_total", "k3.bs1"] == 1


def test_the_engine_is_asked_when_somebody_looks() -> None:
    states = iter([EngineState(running=2, queued=1, kv_used=30, kv_slots=64)] * 2)
    recorder = Recorder(RUN, state=lambda: next(states))
    found = samples(recorder)
    assert found["specbench_requests_running", ""] == 2
    assert found["specbench_requests_queued", ""] == 1
    assert found["specbench_kv_slots_used", ""] == 30
    assert found["specbench_kv_slots", ""] == 64
    assert ("specbench_graph_buckets", "") not in found
    samples(recorder)
    with pytest.raises(StopIteration):
        next(states)


def test_what_is_not_known_is_not_there() -> None:
    names = {name for name, _ in samples(Recorder(RUN))}
    assert names == {"specbench_run_info"}
