"""Break-even from step times: arithmetic on made-up steps, and one real measurement's shape."""

from __future__ import annotations

import pytest

from specbench.config import EngineConfig
from specbench.doctor import step_costs
from specbench.doctor.findings import Severity
from specbench.doctor.parity_setup import engines
from specbench.doctor.step_costs import (
    StepCosts,
    costs_finding,
    costs_line,
    costs_of,
    measure_costs,
)
from specbench.engine.pair import ModelPair
from specbench.errors import WorkloadError
from specbench.trace import StepTrace
from tests.drive import new_request
from tests.tiny import shared_pair


def step(verify: int, *, accepted: int = 0, draft: int = 0, extend: int = 0) -> StepTrace:
    depth = 3 if draft else 0
    return StepTrace(
        batch_step=0, batch=1, committed=9, drafted=depth, depth=depth, accepted=accepted,
        emitted=accepted + 1, verify_ns=verify, draft_ns=draft, extend_ns=extend,
    )  # fmt: skip


def made(accepted: tuple[int, ...], requests: int = 14, noise: int = 0) -> StepCosts:
    plain = [[step(100 + noise * (i % 2)) for i in range(9)] for _ in range(requests)]
    spec = [[step(150, accepted=a, draft=60, extend=40) for a in accepted] for _ in range(requests)]
    return costs_of(plain, spec, 3, "cpu")


def test_break_even_is_the_ratio_of_medians() -> None:
    costs = made((3, 2, 3))
    assert costs.break_even == 2.5
    assert costs.parts == (1.5, 0.4, 0.6)
    assert costs.ratios == (2.5, 2.5, 2.5)
    assert costs.accept_length.value == pytest.approx(1 + 8 / 3)
    assert costs.pays is True
    assert costs_finding(costs) is None
    assert "Break-even accept length 2.50" in costs_line(costs)
    assert "1.5 times plain speed" in costs_line(costs)


def test_right_and_still_slower_is_an_answer() -> None:
    costs = made((1, 0, 1))
    assert costs.pays is False
    found = costs_finding(costs)
    assert found is not None
    assert (found.code, found.severity) == ("speed.break_even", Severity.WARNING)
    assert "slower than plain decoding here, however right" in found.title
    assert found.figures["break_even"] == 2.5
    assert "verify 1.50, extend 0.40, draft 0.60" in found.evidence[1].text


def test_what_cannot_be_told_apart_is_not_told() -> None:
    few = made((1, 0, 1), requests=5)
    assert few.pays is None
    assert costs_finding(few) is None
    assert "too few requests" in costs_line(few)
    assert "not told apart" in costs_line(few)
    assert "The machine was busy" in costs_line(made((3, 2, 3), noise=60))
    assert "busy" not in costs_line(made((3, 2, 3), noise=20))


@pytest.mark.parametrize("fits", [True, False])
def test_a_sweep_that_would_take_other_kernels_is_said(
    fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_costs, "can_run", lambda *_: fits)
    files = shared_pair()
    pair = ModelPair.load(files.target, files.draft, EngineConfig(dtype="float32", kernels="torch"))
    costs = measure_costs(pair, engines(pair), [new_request("r", list(range(9)))], num_steps=2)
    told = "torch's kernels; with a C++ compiler, a sweep on this CPU runs compiled ones"
    assert (told in costs_line(costs)) is fits


def test_both_arms_run_the_same_requests() -> None:
    files = shared_pair()
    pair = ModelPair.load(files.target, files.draft, EngineConfig(dtype="float32", kernels="torch"))
    requests = [new_request(f"r{i}", list(range(5 + i, 20 + i))) for i in range(13)]
    costs = measure_costs(pair, engines(pair), requests, num_steps=2)
    assert costs.plain_steps == 12 * 23  # the first token comes from the prefill
    assert costs.spec_steps < costs.plain_steps
    assert costs.accept_length.n == 12
    assert 1 < costs.accept_length.value <= 3
    assert costs.break_even > 0
    assert costs.ratios[0] <= costs.ratios[1] <= costs.ratios[2]
    assert costs.where.startswith("cpu, float32, eager, batch 1, torch's kernels")
    with pytest.raises(WorkloadError):
        measure_costs(pair, engines(pair), [], num_steps=2)
