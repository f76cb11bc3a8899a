from __future__ import annotations

import pytest

from specbench.collectors import catalogue as cat
from specbench.dashboards import promql as q
from specbench.errors import ConfigError

COUNTER = q.Scope(take="counter", matchers=(), points=())


def test_a_label_that_the_series_lacks_cannot_be_written() -> None:
    with pytest.raises(ConfigError, match="position"):
        q.select(cat.VERIFY_STEPS, 'position="1"')
    assert q.select(cat.ACCEPTED_AT, 'position!="1"', 'arm=~"a|b"').endswith(
        '{position!="1",arm=~"a|b"}'
    )


@pytest.mark.parametrize(
    ("series", "part"), [(cat.STEP_SECONDS, ""), (cat.VERIFY_STEPS, "_sum"), (cat.RUNNING, "_x")]
)
def test_a_part_that_the_series_lacks_cannot_be_written(series: cat.Series, part: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        q.select(series, part=part)


def test_le_belongs_to_buckets_only() -> None:
    assert q.select(cat.ACCEPTED, 'le="1"', part="_bucket")
    with pytest.raises(ConfigError, match="le="):
        q.select(cat.ACCEPTED, 'le="1"', part="_sum")


def test_accept_length_is_one_plus_accepted_per_verify_step() -> None:
    assert q.accept_length(COUNTER, by=("point",)) == (
        '1 + (sum by (point) (specbench_accepted_tokens_total{arm="spec"}) or 0 * '
        'sum by (point) (specbench_verify_steps_total{arm="spec"})) / '
        '(sum by (point) (specbench_verify_steps_total{arm="spec"}) > 0)'
    )


def test_a_choice_of_points_leaves_the_baseline_in() -> None:
    expr = q.speedup(q.Scope())
    assert 'point=~"$point",arm="spec"' in expr
    assert 'point=~"$point",arm="baseline"' not in expr


def test_the_window_and_the_shift_are_on_every_series() -> None:
    scope = q.Scope(span="5m", offset="2h", points=(), matchers=())
    expr = q.break_even(scope)
    assert expr.count("[5m] offset 2h") == 4
    assert expr.count("specbench_point_info{") == expr.count('"} offset 2h')


def test_survival_leaves_unplaced_acceptance_out() -> None:
    assert 'position!="unknown"' in q.survival(COUNTER)


def test_the_last_value_of_a_run_is_taken_while_it_runs() -> None:
    scope = q.Scope(take="counter", matchers=(), points=(), run="$run")
    assert scope.at_end("up") == (
        "last_over_time(((up) * on (job, instance) group_left (run_id) "
        'specbench_run_info{run_id="$run"})[$__range:$resolution])'
    )
