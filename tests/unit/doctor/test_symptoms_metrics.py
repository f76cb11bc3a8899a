"""Counters of servers, ours and others by their published names; what is missing is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specbench.collectors.arm import ArmRecord
from specbench.collectors.points import Cell
from specbench.config import SpecConfig
from specbench.doctor.symptoms_metrics import read_metrics
from specbench.errors import ConfigError, OutputError, UnreachableError
from specbench.trace import StepTrace
from tests.payloads import FOLDER, text_of

VLLM = """# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 600.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 400.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 3000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1771.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 451.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 300.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 367.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="1"} 200.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 253.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="2"} 200.0
"""
SGLANG = (
    'sglang:spec_verify_calls_total{model_name="m"} 100\n'
    'sglang:generation_tokens_total{is_streaming="true"} 250\n'
    'sglang:generation_tokens_total{is_streaming="false"} 60\n'
    "sglang:num_requests_total 10\n"
    "sglang:spec_accept_length 9.9\n"
)
LLAMACPP = text_of("llamacpp_metrics.txt")
LLAMA = "llamacpp:spec_tokens_drafted_total 200\nllamacpp:spec_tokens_accepted_total 90\n"


def page(folder: Path, text: str, name: str = "metrics.txt") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def without(text: str, part: str) -> str:
    kept = [line for line in text.splitlines() if part not in line]
    assert len(kept) < len(text.splitlines())
    return "\n".join(kept)


def test_vllm_counters_sum_over_engines(tmp_path: Path) -> None:
    seen = read_metrics(page(tmp_path, VLLM))
    assert seen.steps == 1000
    assert seen.accept_length is not None
    assert seen.accept_length.value == pytest.approx(2.771)
    assert [round(s.value, 3) for s in seen.conditional] == [0.751, 0.755, 0.799]


def test_real_pages() -> None:
    """206 steps of a sweep on vLLM after 17 others; 187 on llama.cpp, which took its names."""
    vllm = read_metrics(str(FOLDER / "vllm_metrics.txt"))
    assert (vllm.steps, vllm.depth) == (223, 3)
    assert vllm.accept_length is not None
    assert vllm.accept_length.value == pytest.approx(1 + 317 / 223)
    llamacpp = read_metrics(str(FOLDER / "llamacpp_metrics.txt"))
    assert llamacpp.source.endswith("(llama.cpp)")
    assert (llamacpp.steps, llamacpp.depth) == (187, 3)
    assert llamacpp.accept_length is not None
    assert llamacpp.accept_length.value == pytest.approx(1 + 254 / 187)
    assert [round(s.value, 3) for s in llamacpp.conditional] == [0.631, 0.695, 0.659]


def test_a_page_of_a_server_that_decodes_plainly_says_which_server(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is of a vLLM server, and holds no counter"):
        read_metrics(str(FOLDER / "vllm_plain_metrics.txt"))
    zero = re.sub(r"(?m)(llamacpp:spec_decode\w+) \d+$", r"\1 0", without(LLAMACPP, "per_pos"))
    with pytest.raises(ConfigError, match="no step drafted anything"):
        read_metrics(page(tmp_path, zero))


def test_an_earlier_page_is_subtracted(tmp_path: Path) -> None:
    later = VLLM.replace(" 600.0", " 1600.0")
    seen = read_metrics(page(tmp_path, later), page(tmp_path, VLLM, "before"))
    assert seen.steps == 1000
    assert seen.accept_length is not None
    assert seen.accept_length.value == 1.0
    with pytest.raises(ConfigError, match="fell"):
        read_metrics(page(tmp_path, VLLM), page(tmp_path, later, "before"))


def test_sglang_counters_leave_the_prefill_token_out(tmp_path: Path) -> None:
    seen = read_metrics(page(tmp_path, SGLANG))
    assert seen.accept_length is not None
    assert seen.accept_length.value == pytest.approx(3.0)
    assert seen.accept_length.low is None


def test_a_gauge_is_not_added_up_over_ranks(tmp_path: Path) -> None:
    text = "".join(f'sglang:spec_accept_length{{tp_rank="{r}"}} 2.5\n' for r in range(4))
    seen = read_metrics(page(tmp_path, text))
    assert seen.accept_length is not None
    assert seen.accept_length.value == 2.5


def test_drafted_and_accepted_alone_give_no_length(tmp_path: Path) -> None:
    seen = read_metrics(page(tmp_path, LLAMA))
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


@pytest.mark.parametrize(
    ("text", "part", "told"),
    [
        (VLLM, "accepted_tokens", "num_accepted_tokens_total{engine="),
        (VLLM, "num_drafts_total", "lacks vllm:spec_decode_num_drafts_total"),
        (VLLM, 'per_pos_total{engine="1"', 'per_pos_total{engine="1"}'),
        (VLLM, 'position="1"', 'per_pos_total{position="1"}'),
        (SGLANG, "num_requests", "lacks sglang:num_requests_total"),
        (SGLANG, "generation", "lacks sglang:generation_tokens_total"),
        (LLAMA, "accepted", "lacks llamacpp:spec_tokens_accepted_total"),
        (LLAMA, "drafted", "lacks llamacpp:spec_tokens_drafted_total"),
    ],
)
def test_a_missing_counter_is_named_and_not_zero(
    tmp_path: Path, text: str, part: str, told: str
) -> None:
    whole, cut = page(tmp_path, text), page(tmp_path, without(text, part), "cut")
    with pytest.raises(OutputError, match=re.escape(told)):
        read_metrics(cut)
    with pytest.raises(OutputError, match="cut lacks"):
        read_metrics(whole, cut)


def test_an_earlier_page_of_something_else_is_refused(tmp_path: Path) -> None:
    for text in (VLLM, SGLANG, LLAMA):
        with pytest.raises(OutputError, match=r"(?s)other lacks .*leave --since out"):
            read_metrics(page(tmp_path, text), page(tmp_path, "<html>ok</html>\nup 1\n", "other"))


def test_a_gauge_has_nothing_to_subtract(tmp_path: Path) -> None:
    gauge = page(tmp_path, "sglang:spec_accept_length 2.5\n")
    with pytest.raises(OutputError, match="--since has nothing"):
        read_metrics(gauge, gauge)


def test_labels_that_came_later_began_at_zero(tmp_path: Path) -> None:
    before = without(SGLANG, 'is_streaming="false"')
    later = SGLANG.replace(" 100", " 200").replace(" 250", " 500").replace("total 10", "total 20")
    seen = read_metrics(page(tmp_path, later), page(tmp_path, before, "before"))
    assert seen.accept_length is not None
    assert seen.accept_length.value == pytest.approx((250 + 60 - 10) / 100)
    with pytest.raises(ConfigError, match="is gone"):
        read_metrics(page(tmp_path, before), page(tmp_path, SGLANG, "whole"))


def test_pages_of_two_servers_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="same labels twice"):
        read_metrics(page(tmp_path, VLLM + VLLM))


def test_more_accepted_than_drafted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="300 tokens accepted of 200 drafted"):
        read_metrics(page(tmp_path, LLAMA.replace(" 90", " 300")))


def own_page(*arms: ArmRecord) -> str:
    """As ``specbench serve`` and ``sweep --metrics-port`` write it."""
    return "".join(line.decode() for arm in arms for line in arm.lines().values())


def recorded(num_steps: int, accepted: list[int], name: str) -> ArmRecord:
    """An arm whose steps kept ``accepted`` drafts."""
    spec = SpecConfig.chain(num_steps) if num_steps else SpecConfig.baseline()
    arm = ArmRecord(Cell(spec=spec, batch_size=1), name)
    for number, kept in enumerate(accepted):
        arm.step(
            StepTrace(batch_step=number, batch=1, committed=number, drafted=num_steps,
                      depth=num_steps, accepted=kept, emitted=kept + 1)
        )  # fmt: skip
    return arm


def test_our_own_page_is_read_by_point(tmp_path: Path) -> None:
    """Points are never mixed, and plain decoding, which has the most steps, is not a draft."""
    arms = (
        recorded(0, [0] * 500, "base.bs1"),
        recorded(3, [3] * 60 + [1] * 30 + [0] * 10, "k3.bs1"),
        recorded(1, [0] * 20, "k1.bs1"),
    )
    before, after = own_page(*arms), own_page(*arms, recorded(4, [2] * 20, "k4.bs1"))
    seen = read_metrics(page(tmp_path, before))
    assert "(specbench, point k3.bs1 of 2, the deepest chain; --point takes another)" in seen.source
    assert seen.steps == 100
    assert seen.accept_length is not None
    assert seen.accept_length.value == pytest.approx(1 + (60 * 3 + 30) / 100)
    assert [s.value for s in seen.conditional] == pytest.approx([0.9, 60 / 90, 1.0])
    assert "point k4.bs1 of 3" in read_metrics(page(tmp_path, after)).source
    unsaid = "\n".join(line for line in after.splitlines() if "point_info" not in line)
    told = "point k3.bs1 of 3, the one with the most verify steps; --point takes another"
    assert told in read_metrics(page(tmp_path, unsaid)).source
    # What did not run since the earlier page is not judged, however deep.
    arms[2].step(StepTrace(batch_step=99, batch=1, committed=9, drafted=1, depth=1, accepted=1,
                           emitted=2))  # fmt: skip
    seen = read_metrics(page(tmp_path, own_page(*arms)), page(tmp_path, before, "before"))
    assert (seen.source.split("point ")[1][:6], seen.steps) == ("k1.bs1", 1)


def test_our_own_page_without_what_it_takes(tmp_path: Path) -> None:
    arm = own_page(recorded(3, [2] * 50, "k3.bs1"))
    accepted = without(arm, "specbench_accepted_tokens_total")
    told = 'specbench_accepted_tokens_total{arm="spec",point="k3.bs1"}'
    with pytest.raises(OutputError, match=re.escape(told)):
        read_metrics(page(tmp_path, accepted))
    with pytest.raises(OutputError, match=re.escape('point="k3.bs1",position="2"}')):
        read_metrics(page(tmp_path, without(arm, 'accepted_tokens_total{arm="spec",point="k3.bs1",'
                                                 'position="2"')))  # fmt: skip
    with pytest.raises(OutputError, match="plain decoding alone"):
        read_metrics(page(tmp_path, own_page(recorded(0, [0] * 9, "base.bs1"))))
    with pytest.raises(ConfigError, match="no step drafted"):
        read_metrics(page(tmp_path, own_page(recorded(3, [], "k3.bs1"))))


def test_our_own_page_of_a_server_with_sums(tmp_path: Path) -> None:
    """Accepted drafts at no known position: an accept length and no shape."""
    text = (
        'specbench_verify_steps_total{arm="spec",point="k3"} 100\n'
        'specbench_accepted_tokens_total{arm="spec",point="k3",position="unknown"} 150\n'
    )
    seen = read_metrics(page(tmp_path, text))
    assert seen.accept_length is not None
    assert (seen.accept_length.value, seen.conditional) == (2.5, ())
    assert "sums alone" in seen.basis


def test_a_point_of_our_own_page_can_be_chosen(tmp_path: Path) -> None:
    arms = (
        recorded(3, [3] * 60, "k3.bs1"),
        recorded(1, [1] * 20, "k1.bs1"),
        recorded(1, [1] * 30, "k1.bs4"),
    )
    ours, other = page(tmp_path, own_page(*arms)), page(tmp_path, VLLM, "vllm")
    seen = read_metrics(ours, point="k1.bs1")
    assert (seen.steps, "point k1.bs1 of 3, the one asked for" in seen.source) == (20, True)
    with pytest.raises(ConfigError, match=r"--point k1\. One of k1\.bs1, k1\.bs4\."):
        read_metrics(ours, point="k1")
    assert read_metrics(page(tmp_path, own_page(*arms[:2]), "two"), point="k1").steps == 20
    with pytest.raises(ConfigError, match=r"--point k9\. One of k1\.bs1, k1\.bs4, k3\.bs1"):
        read_metrics(ours, point="k9")
    with pytest.raises(ConfigError, match="counts no points"):
        read_metrics(other, point="k1")
