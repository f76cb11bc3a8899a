"""Shapes in a run directory: steps made with a fault show it, those without do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specbench.doctor.findings import Severity
from specbench.doctor.symptoms import diagnose
from specbench.doctor.symptoms_run import check_control, read_run
from specbench.errors import ConfigError, OutputError
from specbench.estimate import Evidence
from specbench.request import Request
from specbench.store import RunDir
from specbench.trace import ArmRun, Chunk, Finish, RequestTrace, StepTrace, Usage
from tests.unit.data.killed_writer import RUN as KILLED

DEPTH = 3
PLAIN = {"num_steps": 0, "topk": 1, "num_draft_tokens": 1}
CHAIN = {"num_steps": DEPTH, "topk": 1, "num_draft_tokens": DEPTH + 1}
RUN = {**KILLED, "points": {"base": PLAIN, "base-again": PLAIN, "k3": CHAIN}}
Chance = Callable[[int, int, str], float]  # step since prefill, context, category


def trace(rng: np.random.Generator, index: int, chance: Chance, batch: int) -> RequestTrace:
    """A request of 60 steps at contexts from 64 to some 250 tokens."""
    category = ("code", "prose")[index % 2]
    name, committed, steps = f"{category}-{index}", 64, []
    for cycle in range(60):
        share = chance(cycle, committed, category)
        kept = min(DEPTH, int(rng.geometric(1 - share)) - 1)
        steps.append(
            StepTrace(
                batch_step=cycle, batch=batch, committed=committed, drafted=DEPTH, depth=DEPTH,
                accepted=kept, emitted=kept + 1, verify_ns=2_000_000,
            )
        )  # fmt: skip
        committed += kept + 1
    return RequestTrace(
        request=Request(request_id=name, prompt=name, prompt_id=name, category=category),
        due_ns=0, sent_ns=0, end_ns=1000,
        chunks=(Chunk(at_ns=10, tokens=1), Chunk(at_ns=1000, tokens=committed - 64)),
        steps=tuple(steps), finish=Finish.LENGTH, evidence=Evidence.STEPS,
        usage=Usage(completion_tokens=committed - 63),
    )  # fmt: skip


def write(folder: Path, *arms: tuple[int, Chance], seed: int = 1) -> Path:
    """A run with an arm per batch size, 30 requests each."""
    rng = np.random.default_rng(seed)
    with RunDir.create(folder, RUN) as run:
        for batch, chance in arms:
            requests = tuple(trace(rng, i, chance, batch) for i in range(30))
            run.save_block(
                ArmRun(point_id="k3", workload="w", batch_size=batch, temperature=0.0, block=0,
                       started_ns=0, wall_ns=1, requests=requests)
            )  # fmt: skip
        run.finish()
    return folder


def plain(index: int, steps: int) -> RequestTrace:
    """A request of the baseline: a step that drafts nothing for each token, 1 ms each."""
    name = f"code-{index}"
    made = tuple(
        StepTrace(batch_step=i, batch=1, committed=64 + i, drafted=0, depth=0, accepted=0,
                  emitted=1, verify_ns=1_000_000)
        for i in range(steps)
    )  # fmt: skip
    return RequestTrace(
        request=Request(request_id=name, prompt=name, prompt_id=name, category="code"),
        due_ns=0, sent_ns=0, end_ns=1000,
        chunks=(Chunk(at_ns=10, tokens=1), Chunk(at_ns=1000, tokens=steps)),
        steps=made, finish=Finish.LENGTH, evidence=Evidence.STEPS,
        usage=Usage(completion_tokens=steps + 1),
    )  # fmt: skip


def write_plain(run: RunDir, point: str) -> None:
    """An arm of plain decoding beside those of ``write``, of more steps than they have."""
    run.save_block(
        ArmRun(point_id=point, workload="w", batch_size=1, temperature=0.0, block=0,
               started_ns=0, wall_ns=1, requests=tuple(plain(i, 300) for i in range(30)))
    )  # fmt: skip


def add_point(folder: Path, point: str, spec: dict[str, int], requests: int) -> None:
    """An arm of another point beside those of ``write``, which accepts a fifth of its drafts."""
    content = json.loads((folder / "run.json").read_text())
    content["points"][point] = spec
    (folder / "run.json").write_text(json.dumps(content))
    rng = np.random.default_rng(3)
    with RunDir.resume(folder, {**RUN, "points": content["points"]}) as run:
        run.save_block(
            ArmRun(point_id=point, workload="w", batch_size=1, temperature=0.0, block=0,
                   started_ns=0, wall_ns=1,
                   requests=tuple(trace(rng, i, lambda *_: 0.2, 1) for i in range(requests)))
        )  # fmt: skip
        run.finish()


def healthy(cycle: int, context: int, category: str) -> float:
    return 0.75


@pytest.mark.parametrize(
    ("chance", "shape"),
    [
        (healthy, "shape.none"),
        (lambda cycle, context, category: 0.75 if cycle == 0 else 0.4, "shape.cycle"),
        (lambda cycle, context, category: 0.75 if context < 128 else 0.45, "shape.long"),
        (lambda cycle, context, category: 0.85 if category == "code" else 0.6, "shape.category"),
    ],
)
def test_shapes_of_a_run(tmp_path: Path, chance: Chance, shape: str) -> None:
    seen, break_even = read_run(write(tmp_path / "run", (1, chance)))
    assert break_even is None
    assert shape in [f.code for f in diagnose(seen)]


def test_a_batch_that_accepts_less_is_a_shape(tmp_path: Path) -> None:
    seen, _ = read_run(write(tmp_path / "run", (1, healthy), (4, lambda *_: 0.5)))
    assert seen.source == "run: k3, temperature 0, batch sizes 1, 4"
    assert [f.code for f in diagnose(seen)] == ["shape.batch"]


def test_a_control_shows_a_difference_or_says_that_none_was(tmp_path: Path) -> None:
    seen, _ = read_run(write(tmp_path / "a", (1, healthy)))
    same, _ = read_run(write(tmp_path / "b", (1, healthy), seed=2))
    worse, _ = read_run(write(tmp_path / "c", (1, lambda *_: 0.5)))
    assert check_control(seen, same, "graph").severity is Severity.NOTE
    found = check_control(seen, worse, "graph")
    assert (found.code, found.severity) == ("shape.graph", Severity.WARNING)
    assert check_control(seen, worse, "template").code == "shape.control"
    with pytest.raises(ConfigError, match="graph, batch"):
        check_control(seen, same, "moon")


def test_the_deepest_chain_is_judged_of_several_points(tmp_path: Path) -> None:
    """A shallow one has the most verify steps for the same text, and no tail to show."""
    folder = write(tmp_path / "run", (1, healthy))
    assert read_run(folder)[0].chosen == "the one point that drafted"
    add_point(folder, "k1", {"num_steps": 1, "topk": 1, "num_draft_tokens": 2}, requests=60)
    seen, _ = read_run(folder)
    assert (seen.point, seen.chosen) == ("k3", "the deepest chain; --point takes k1")
    seen, _ = read_run(folder, "k1")
    assert (seen.point, seen.chosen) == ("k1", "the point asked for")


def test_of_equally_deep_chains_the_one_of_most_steps_is_judged(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", (1, healthy))
    add_point(folder, "again", CHAIN, requests=29)
    assert read_run(folder)[0].point == "k3"
    add_point(folder, "more", CHAIN, requests=31)
    assert read_run(folder)[0].point == "more"


def test_a_control_is_read_at_the_point_that_it_controls(tmp_path: Path) -> None:
    """The run of the control has a deeper point of another count, which would be judged alone."""
    folder = write(tmp_path / "b", (1, healthy), seed=2)
    add_point(folder, "k5", CHAIN | {"num_steps": 5, "num_draft_tokens": 6}, requests=60)
    assert read_run(folder)[0].point == "k5"
    seen, _ = read_run(write(tmp_path / "a", (1, healthy)))
    assert seen.point == "k3"
    assert check_control(seen, read_run(folder, seen.point)[0], "graph").severity is Severity.NOTE
    with pytest.raises(OutputError, match=r"did not draft at k9.* One of k3, k5\."):
        read_run(folder, "k9")


def test_a_run_without_drafts_is_refused(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "run", RUN) as run:
        run.finish()
    with pytest.raises(OutputError, match="no request that drafted"):
        read_run(tmp_path / "run")


def test_a_second_plain_arm_is_no_draft_that_fails(tmp_path: Path) -> None:
    """As ``--noise-floor`` writes it: its steps drafted nothing, and there are more of them."""
    write(tmp_path / "run", (1, healthy))
    with RunDir.resume(tmp_path / "run", RUN) as run:
        for point in ("base", "base-again"):
            write_plain(run, point)
        run.finish()
    seen, break_even = read_run(tmp_path / "run")
    assert seen.source == "run: k3, temperature 0, batch size 1"
    assert break_even == pytest.approx(2.0)
    assert [f.code for f in diagnose(seen, break_even=break_even)] == ["shape.none"]


def test_plain_arms_alone_are_no_run_that_drafted(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "run", RUN) as run:
        for point in ("base", "base-again"):
            write_plain(run, point)
        run.finish()
    with pytest.raises(OutputError, match="no request that drafted"):
        read_run(tmp_path / "run")


def test_a_point_that_the_run_does_not_list_is_named(tmp_path: Path) -> None:
    write(tmp_path / "run", (1, healthy))
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    for points, told in (({"base": PLAIN}, "holds blocks of k3"), ([], r"points=\[\] is no table")):
        (tmp_path / "run" / "run.json").write_text(json.dumps({**content, "points": points}))
        with pytest.raises(OutputError, match=told):
            read_run(tmp_path / "run")


def test_hard_requests_with_many_steps_are_no_decay(tmp_path: Path) -> None:
    """Of a mixture only the hard requests have late steps; that is not a fault of late steps."""
    rng = np.random.default_rng(3)
    made = []
    for index in range(40):
        share = 0.9 if index % 2 else 0.4
        whole = trace(rng, index, lambda *_, s=share: s, 1)
        kept, tokens = [], 0
        for step in whole.steps:
            if tokens < 40:
                kept.append(step)
                tokens += step.emitted
        made.append(replace(whole, steps=tuple(kept)))
    with RunDir.create(tmp_path / "run", RUN) as run:
        run.save_block(
            ArmRun(point_id="k3", workload="w", batch_size=1, temperature=0.0, block=0,
                   started_ns=0, wall_ns=1, requests=tuple(made))
        )  # fmt: skip
        run.finish()
    seen, _ = read_run(tmp_path / "run")
    assert "shape.cycle" not in [f.code for f in diagnose(seen)]
