"""Counters of other servers, by their published names."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.doctor.symptoms_metrics import read_metrics
from specbench.errors import ConfigError, OutputError, UnreachableError

VLLM = """# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 600.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 400.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 3000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1771.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 751.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 567.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 453.0
"""


def page(folder: Path, text: str, name: str = "metrics.txt") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_vllm_counters_sum_over_engines(tmp_path: Path) -> None:
    seen = read_metrics(page(tmp_path, VLLM))
    assert seen.steps == 1000
    assert seen.accept_length is not None
    assert seen.accept_length.value == pytest.approx(2.771)
    assert [round(s.value, 3) for s in seen.conditional] == [0.751, 0.755, 0.799]


def test_an_earlier_page_is_subtracted(tmp_path: Path) -> None:
    later = VLLM.replace(" 600.0", " 1600.0")
    seen = read_metrics(page(tmp_path, later), page(tmp_path, VLLM, "before"))
    assert seen.steps == 1000
    assert seen.accept_length is not None
    assert seen.accept_length.value == 1.0
    with pytest.raises(ConfigError, match="fell"):
        read_metrics(page(tmp_path, VLLM), page(tmp_path, later, "before"))


def test_sglang_counters_leave_the_prefill_token_out(tmp_path: Path) -> None:
    text = (
        'sglang:spec_verify_calls_total{model_name="m"} 100\n'
        'sglang:generation_tokens_total{is_streaming="true"} 250\n'
        'sglang:generation_tokens_total{is_streaming="false"} 60\n'
        "sglang:num_requests_total 10\n"
        "sglang:spec_accept_length 9.9\n"
    )
    seen = read_metrics(page(tmp_path, text))
    assert seen.accept_length is not None
    assert seen.accept_length.value == pytest.approx(3.0)
    assert seen.accept_length.low is None


def test_a_gauge_is_not_added_up_over_ranks(tmp_path: Path) -> None:
    text = "".join(f'sglang:spec_accept_length{{tp_rank="{r}"}} 2.5\n' for r in range(4))
    seen = read_metrics(page(tmp_path, text))
    assert seen.accept_length is not None
    assert seen.accept_length.value == 2.5


def test_drafted_and_accepted_alone_give_no_length(tmp_path: Path) -> None:
    text = "llamacpp:spec_tokens_drafted_total 200\nllamacpp:spec_tokens_accepted_total 90\n"
    seen = read_metrics(page(tmp_path, text))
    assert seen.accept_length is None
    assert "45 %" in seen.basis


@pytest.mark.parametrize("text", ["", "up 1\n", "sglang:spec_accept_length NaN\n", "{{{ \x00\n"])
def test_a_page_without_speculation_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(OutputError, match="no counter"):
        read_metrics(page(tmp_path, text))


def test_places_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be read"):
        read_metrics(str(tmp_path / "none"))
    with pytest.raises(UnreachableError):
        read_metrics("http://127.0.0.1:9/metrics")
    idle = VLLM.replace("600.0", "0").replace("400.0", "0")
    with pytest.raises(ConfigError):
        read_metrics(page(tmp_path, idle))


@pytest.mark.parametrize("count", ["-600", "1e300", "1.7e308"])
def test_a_counter_that_is_no_count_is_named(tmp_path: Path, count: str) -> None:
    with pytest.raises(ConfigError, match=r"spec_decode_num_drafts is .*\. A count\."):
        read_metrics(page(tmp_path, VLLM.replace("600.0", count)))
