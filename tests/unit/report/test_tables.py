import csv
import dataclasses
import io

import pytest

from specbench.metrics.rows import SummaryRow, rows
from specbench.metrics.summary import Summary
from specbench.report.tables import COLUMNS, summary_csv_text

DESIGNED = """
point_id, backend, target, draft, workload, category, batch_size, temperature,
num_steps, topk, num_draft_tokens, requests, output_tokens, verify_steps,
accept_length, accept_length_low, accept_length_high, accept_rate_depth, accept_rate_node,
output_tok_s, output_tok_s_low, output_tok_s_high, baseline_tok_s, speedup, speedup_low,
speedup_high, break_even_accept_length, step_ms, draft_ms, extend_ms, verify_ms, other_ms,
ttft_ms_p50, ttft_ms_p99, tpot_ms_p50, tpot_ms_p99, chunk_gap_ms_p50, chunk_gap_ms_p99,
gpu_util_pct, gpu_power_w, energy_j_per_token, lossless, validity
"""


@pytest.fixture(scope="module")
def found(summary: Summary) -> tuple[SummaryRow, ...]:
    return rows(summary)


def read(found: tuple[SummaryRow, ...]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(summary_csv_text(found))))


def test_columns_are_those_of_the_design() -> None:
    assert tuple(name.strip() for name in DESIGNED.replace("\n", " ").split(",")) == COLUMNS


def test_survival_columns_follow_to_the_deepest(found: tuple[SummaryRow, ...]) -> None:
    header = summary_csv_text(found).splitlines()[0].split(",")
    assert tuple(header[: len(COLUMNS)]) == COLUMNS
    assert header[len(COLUMNS) :] == [f"survival_{i}" for i in range(1, 6)]


def test_missing_is_empty_and_zero_is_zero(found: tuple[SummaryRow, ...]) -> None:
    base, chain = read(found)[0], next(r for r in read(found) if r["point_id"] == "k1")
    assert base["speedup"] == base["gpu_power_w"] == base["survival_1"] == base["lossless"] == ""
    assert base["draft_ms"] == "0"
    assert chain["survival_2"] == ""
    assert float(chain["survival_1"]) > 0


def test_numbers_survive_the_file(found: tuple[SummaryRow, ...]) -> None:
    for line, row in zip(read(found), found, strict=True):
        assert int(line["requests"]) == row.requests
        if row.speedup is not None:
            assert float(line["speedup"]) == pytest.approx(row.speedup, rel=1e-5)


def test_energy_per_accepted_draft_is_a_column_only_where_it_was_measured(
    found: tuple[SummaryRow, ...],
) -> None:
    assert "energy_j_per_accepted" not in summary_csv_text(found)
    first = dataclasses.replace(found[0], energy_j_per_accepted=0.5, request_rate=2.5)
    header, line, other, *_ = summary_csv_text((first, *found[1:])).splitlines()
    assert header.endswith(",energy_j_per_accepted,request_rate")
    assert line.endswith(",0.5,2.5")
    assert other.endswith(",,")


def test_request_rate_comes_last_and_only_in_an_open_loop(found: tuple[SummaryRow, ...]) -> None:
    open_loop = tuple(dataclasses.replace(row, request_rate=2.5) for row in found)
    assert summary_csv_text(open_loop).splitlines()[0].endswith(",request_rate")
    assert summary_csv_text(open_loop).splitlines()[1].endswith(",2.5")
    assert "request_rate" not in summary_csv_text(found)


def test_names_with_commas_are_quoted(found: tuple[SummaryRow, ...]) -> None:
    odd = dataclasses.replace(found[0], target='a,"b"')
    assert read((odd,))[0]["target"] == 'a,"b"'
