from __future__ import annotations

import pytest

from specbench.config import SpecConfig
from specbench.metrics.arms import gather
from specbench.metrics.curves import curves, survival_estimates
from specbench.metrics.summary import summarise
from specbench.metrics.sums import complete_sums
from tests.unit.report.sample_runs import sample_input

POINTS = (SpecConfig.baseline(), SpecConfig.chain(3))


def test_a_curve_holds_what_its_figures_rest_on() -> None:
    given = sample_input(requests=20, points=POINTS, batch_sizes=(1,))
    found = {
        (one.key.point_id, one.category): one
        for one in curves(summarise(given), gather(given.runs))
    }
    total = found["k3", "all"]
    assert total.accept_length is not None
    tokens, steps = (sum(getattr(u, name) for u in total.units) for name in ("tokens", "steps"))
    assert tokens / steps == pytest.approx(total.accept_length.value)
    assert len(total.units) == len(total.timings) == 20
    assert {t.block for t in total.timings} == {0, 1}
    assert total.speedup is not None
    plain = sum(t.plain_ns for t in total.timings) / sum(t.plain_tokens for t in total.timings)
    spec = sum(t.spec_ns for t in total.timings) / sum(t.spec_tokens for t in total.timings)
    assert plain / spec == pytest.approx(total.speedup.value)
    code = found["k3", "code"]
    assert 0 < len(code.units) < 20
    assert found["base", "all"].accept_length is None
    assert found["base", "all"].units == ()


def test_survival_falls_with_depth_and_has_intervals() -> None:
    given = sample_input(requests=20, points=POINTS, batch_sizes=(1,))
    arm = complete_sums([run for run in given.runs if run.point_id == "k3"])
    found = survival_estimates(arm)
    assert len(found) == 3
    assert found[0].value > found[1].value > found[2].value
    assert all(one.low is not None and one.low < one.value for one in found)
    steps = [step for request in arm for step in request.trace.steps]
    assert found[1].value == pytest.approx(sum(s.accepted >= 2 for s in steps) / len(steps))
