"""Energy per token, known by construction: constant watts over a known window."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from specbench.gpu_samples import GpuSample
from specbench.metrics.arms import Arm, gather
from specbench.metrics.energy import LEAST_SAMPLES, gpu_use
from specbench.metrics.example import MS, run_of, trace_of
from specbench.metrics.gpu_track import Samples
from specbench.trace import ArmRun, RequestTrace

# 20 ms of prefill and three steps of 100 ms: 1 + 4 + 3 + 1 tokens of which 5 were accepted drafts.
STEPS = (3, 2, 0)
WALL_S, TOKENS, ACCEPTED = 0.32, 9, 5


def request(name: str, category: str = "", sent_ms: int = 0) -> RequestTrace:
    trace = trace_of(STEPS, depth=3, name=name, step_ms=100.0)
    moved = tuple(
        dataclasses.replace(chunk, at_ns=chunk.at_ns + sent_ms * MS) for chunk in trace.chunks
    )
    return dataclasses.replace(
        trace,
        request=dataclasses.replace(trace.request, category=category),
        sent_ns=sent_ms * MS,
        chunks=moved,
        end_ns=moved[-1].at_ns,
    )


def block_of(*traces: RequestTrace, point_id: str = "k3", block: int = 0) -> ArmRun:
    """One after another: the window ends with the last."""
    run = run_of(*traces, point_id=point_id, block=block)
    return dataclasses.replace(run, wall_ns=max(trace.end_ns for trace in traces))


def arm_of(*runs: ArmRun) -> Arm:
    (arm,) = gather(runs).values()
    return arm


def drawn(
    watts: float,
    *,
    gpu: str = "0",
    from_ms: int = -50,
    to_ms: int = 400,
    every_ms: int = 50,
    utilisation: float | None = 0.5,
) -> list[GpuSample]:
    """Samples of a GPU that draws ``watts`` all the time."""
    return [
        GpuSample(
            at_ns=at * MS,
            gpu=gpu,
            utilisation=utilisation,
            power_w=watts,
            energy_j=watts * (at - from_ms) / 1000,
        )
        for at in range(from_ms, to_ms + 1, every_ms)
    ]


def of(arm: Arm, *blocks: Sequence[GpuSample]) -> Samples:
    return {(arm.key, run.block): its for run, its in zip(arm.runs, blocks, strict=True)}


def test_joules_per_token_and_per_accepted_draft() -> None:
    arm = arm_of(block_of(request("a")))

    use = gpu_use(arm, of(arm, drawn(500.0)))

    assert use is not None
    assert use.joules == pytest.approx(500 * WALL_S)
    assert use.power_w == pytest.approx(500)
    assert use.j_per_token == pytest.approx(500 * WALL_S / TOKENS)
    assert use.j_per_accepted == pytest.approx(500 * WALL_S / ACCEPTED)
    assert use.util_pct == pytest.approx(50)


def test_gpus_are_added_up() -> None:
    arm = arm_of(block_of(request("a")))
    both = [*drawn(300.0), *drawn(200.0, gpu="1", from_ms=-30, every_ms=70, utilisation=1.0)]

    use = gpu_use(arm, of(arm, both))

    assert use is not None
    assert use.power_w == pytest.approx(500)
    assert use.j_per_token == pytest.approx(500 * WALL_S / TOKENS)
    assert use.util_pct is not None
    assert 50 < use.util_pct < 100


def test_blocks_are_pooled_by_their_time() -> None:
    arm = arm_of(block_of(request("a")), block_of(request("b"), request("c", sent_ms=320), block=1))

    use = gpu_use(arm, of(arm, drawn(100.0), drawn(400.0, to_ms=800)))

    assert use is not None
    assert use.joules == pytest.approx((100 + 2 * 400) * WALL_S)
    assert use.power_w == pytest.approx((100 + 2 * 400) / 3)
    assert use.j_per_token == pytest.approx((100 + 2 * 400) * WALL_S / (3 * TOKENS))


def test_a_block_that_samples_do_not_enclose_is_left_out_with_its_tokens() -> None:
    arm = arm_of(block_of(request("a")), block_of(request("b"), block=1))

    use = gpu_use(arm, of(arm, drawn(100.0), drawn(900.0, to_ms=300)))  # lost at 300 of 320 ms

    assert use is not None
    assert use.power_w == pytest.approx(100)
    assert use.j_per_token == pytest.approx(100 * WALL_S / TOKENS)


def test_one_gpu_of_two_is_no_figure() -> None:
    arm = arm_of(block_of(request("a")))
    silent = [dataclasses.replace(s, energy_j=None) for s in drawn(1.0, gpu="1")]

    use = gpu_use(arm, of(arm, [*drawn(100.0), *silent]))

    assert use is not None
    assert use.joules is use.power_w is use.j_per_token is use.j_per_accepted is None
    assert use.util_pct == pytest.approx(50)


def test_an_instance_has_the_energy_of_its_gpu() -> None:
    arm = arm_of(block_of(request("a")))
    part = [GpuSample(at_ns=s.at_ns, gpu="0:mig0", memory_used_bytes=1) for s in drawn(1.0)]

    use = gpu_use(arm, of(arm, [*drawn(100.0, utilisation=None), *part]))

    assert use is not None
    assert use.power_w == pytest.approx(100)
    assert use.util_pct is None


def test_without_samples_nothing_is_said() -> None:
    arm = arm_of(block_of(request("a")))
    assert gpu_use(arm, {}) is None
    assert gpu_use(arm, of(arm, [])) is None


def test_nothing_accepted_is_empty_and_unknown_tokens_are_empty() -> None:
    plain = trace_of((0, 0, 0), depth=0, drafted=0, step_ms=100.0)
    unknown = dataclasses.replace(
        plain,
        usage=dataclasses.replace(plain.usage, completion_tokens=None),
        chunks=tuple(dataclasses.replace(c, tokens=None, text="x") for c in plain.chunks),
    )
    for trace, per_token in ((plain, 100 * WALL_S / 4), (unknown, None)):
        arm = arm_of(block_of(trace, point_id="base"))
        use = gpu_use(arm, of(arm, drawn(100.0)))
        assert use is not None
        assert use.j_per_accepted is None
        assert use.j_per_token == (None if per_token is None else pytest.approx(per_token))
        assert use.power_w == pytest.approx(100)


def two_categories() -> tuple[Arm, Samples]:
    """``code`` runs at 100 W from 0 to 320 ms, ``prose`` at 300 W from 320 to 640 ms."""
    arm = arm_of(block_of(request("a", "code"), request("b", "prose", sent_ms=320)))
    at = range(-40, 681, 40)
    energy = [0.1 * t if t <= 320 else 32 + 0.3 * (t - 320) for t in at]
    samples = [
        GpuSample(at_ns=t * MS, gpu="0", energy_j=4 + joules)
        for t, joules in zip(at, energy, strict=True)
    ]
    return arm, of(arm, samples)


def test_a_category_at_batch_1_has_the_energy_of_its_own_requests() -> None:
    arm, samples = two_categories()

    code, prose = (gpu_use(arm, samples, name) for name in ("code", "prose"))

    assert code is not None
    assert prose is not None
    assert code.power_w == pytest.approx(100)
    assert prose.power_w == pytest.approx(300)
    assert prose.j_per_token == pytest.approx(300 * WALL_S / TOKENS)


def test_a_category_that_shared_the_gpu_has_none() -> None:
    arm, samples = two_categories()
    assert gpu_use(arm, samples, "code", open_loop=True) is None

    wide = dataclasses.replace(arm.key, cell=dataclasses.replace(arm.key.cell, batch_size=2))
    arm = dataclasses.replace(arm, key=wide)
    shared = {(wide, block): its for (_, block), its in samples.items()}
    assert gpu_use(arm, shared, "code") is None
    assert gpu_use(arm, shared) is not None


def test_a_category_of_too_few_samples_has_none() -> None:
    arm, samples = two_categories()
    (key,) = samples
    thin = {key: samples[key][::2]}  # every 80 ms: 4 in the time of a category

    assert len([s for s in thin[key] if 0 < s.at_ns <= 320 * MS]) == LEAST_SAMPLES - 1
    assert gpu_use(arm, thin, "code") is None
    assert gpu_use(arm, thin) is not None


def test_the_only_category_has_the_figures_of_all() -> None:
    arm = arm_of(block_of(request("a", "code")))
    samples = of(arm, drawn(100.0, every_ms=150))
    assert gpu_use(arm, samples, "code") == gpu_use(arm, samples)
    assert gpu_use(arm, samples) is not None


def test_a_gpu_that_is_gone_takes_the_energy_of_later_blocks_along() -> None:
    arm = arm_of(block_of(request("a")), block_of(request("b"), block=1))
    both = [*drawn(300.0), *drawn(200.0, gpu="1")]

    use = gpu_use(arm, of(arm, both, drawn(300.0)))

    assert use is not None
    assert use.joules == pytest.approx(500 * WALL_S)  # of the first block alone, not 800 of both
    assert use.j_per_token == pytest.approx(500 * WALL_S / TOKENS)
