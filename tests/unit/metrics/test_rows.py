import dataclasses

import pytest

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Severity
from specbench.metrics.rows import SummaryRow, rows, validity
from specbench.metrics.summary import summarise
from tests.unit.report.sample_runs import CATEGORIES, sample_input

POINTS = (SpecConfig.baseline(), SpecConfig.chain(3))


@pytest.fixture(scope="module")
def found() -> tuple[SummaryRow, ...]:
    return rows(summarise(sample_input(requests=15, points=POINTS, batch_sizes=(1, 4))))


def one(found: tuple[SummaryRow, ...], **wanted: object) -> SummaryRow:
    (row,) = (r for r in found if all(getattr(r, k) == v for k, v in wanted.items()))
    return row


def test_one_row_for_all_and_one_per_category(found: tuple[SummaryRow, ...]) -> None:
    assert len(found) == 2 * 2 * (1 + len(CATEGORIES))
    assert [row.category for row in found[:6]] == ["all", *sorted(CATEGORIES)]


def test_counts_of_categories_add_up(found: tuple[SummaryRow, ...]) -> None:
    for batch in (1, 4):
        whole = one(found, point_id="k3", category="all", batch_size=batch)
        parts = [
            r for r in found if r.point_id == "k3" and r.batch_size == batch and r.category != "all"
        ]
        assert whole.verify_steps == sum(r.verify_steps or 0 for r in parts)
        assert whole.output_tokens == sum(r.output_tokens or 0 for r in parts)


def test_baseline_row(found: tuple[SummaryRow, ...]) -> None:
    row = one(found, point_id="base", category="all", batch_size=1)
    assert (row.num_steps, row.topk, row.num_draft_tokens) == (0, 1, 1)
    assert (row.speedup, row.baseline_tok_s, row.lossless) == (None, None, None)
    assert row.accept_rate_depth is row.break_even_accept_length is None
    assert row.output_tok_s is not None
    assert (row.accept_length, row.survival) == (1.0, ())


def test_speculative_row_is_consistent(found: tuple[SummaryRow, ...]) -> None:
    row = one(found, point_id="k3", category="all", batch_size=1)
    base = one(found, point_id="base", category="all", batch_size=1)
    assert row.baseline_tok_s == base.output_tok_s
    assert row.accept_length == pytest.approx(1 + sum(row.survival))
    assert row.accept_rate_depth == pytest.approx(sum(row.survival) / 3)
    assert row.step_ms == pytest.approx(
        sum(p or 0 for p in (row.draft_ms, row.extend_ms, row.verify_ms, row.other_ms))
    )
    assert row.break_even_accept_length == pytest.approx((row.step_ms or 0) / (base.step_ms or 1))
    assert row.lossless == "exact"


def test_category_at_a_larger_batch_leaves_speed_empty(found: tuple[SummaryRow, ...]) -> None:
    row = one(found, point_id="k3", category="prose", batch_size=4)
    assert row.speedup is row.output_tok_s is row.baseline_tok_s is row.step_ms is None
    assert row.tpot_ms_p50 is not None
    assert row.accept_length is not None
    alone = one(found, point_id="k3", category="prose", batch_size=1)
    assert alone.speedup is not None


def test_a_category_judges_its_own_sample(found: tuple[SummaryRow, ...]) -> None:
    whole = one(found, point_id="k3", category="all", batch_size=1)
    part = one(found, point_id="k3", category="prose", batch_size=1)
    assert "too_few_requests" not in whole.validity
    assert part.validity.startswith("too_few_requests")


def test_gpu_columns_are_empty(found: tuple[SummaryRow, ...]) -> None:
    assert all(r.gpu_util_pct is r.gpu_power_w is r.energy_j_per_token is None for r in found)


def test_open_loop_rows_carry_the_rate_and_no_steps() -> None:
    given = dataclasses.replace(
        sample_input(requests=15, points=POINTS, batch_sizes=(4,)), request_rate=2.5
    )
    for row in rows(summarise(given)):
        assert row.request_rate == 2.5
        assert row.step_ms is row.break_even_accept_length is None


def test_validity_lists_each_code_once() -> None:
    a, b = (Caveat(code=c, severity=Severity.NOTE, text="") for c in "ab")
    assert validity((a, b, a)) == "a;b"
    assert validity(()) == "ok"
