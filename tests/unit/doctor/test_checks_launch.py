"""Launch arguments: what would silently be changed is said."""

from __future__ import annotations

import pytest

from specbench.doctor.checks_launch import check_launch, parse_launch
from specbench.doctor.findings import Severity, has_error
from specbench.errors import ConfigError

NUMBERS = "--speculative-num-steps {} --speculative-eagle-topk {} --speculative-num-draft-tokens {}"


def codes(text: str, arch: str = "") -> list[str]:
    return [finding.code for finding in check_launch(parse_launch(text), arch)]


def test_num_steps_wins_over_num_draft_tokens() -> None:
    (found,) = check_launch(parse_launch(NUMBERS.format(1, 1, 16)))
    assert (found.code, found.severity) == ("launch.override", Severity.ERROR)
    assert dict(found.figures) == {"asked": 16, "resolved": 2, "most_accept_length": 2}
    assert "--speculative-num-steps 15" in found.remedy
    (found,) = check_launch(parse_launch(NUMBERS.format(4, 1, 24)))  # SpecForge 310
    assert found.figures["resolved"] == 5


def test_a_launch_without_speculation_says_so() -> None:
    """A mistyped flag is no sound launch."""
    (found,) = check_launch(parse_launch("--speculativ-num-steps 3 --model m"))
    assert found.title == "No flag of speculation is among them"
    assert found.remedy == "Is --speculative-num-steps meant?"
    assert [fact.text for fact in found.evidence] == ["--speculativ-num-steps", "--model"]


@pytest.mark.parametrize("value", ["nan", "inf", "x"])
def test_a_threshold_is_a_number(value: str) -> None:
    with pytest.raises(ConfigError, match="A number"):
        codes(f"--speculative-algorithm EAGLE3 --speculative-accept-threshold-acc {value}")


@pytest.mark.parametrize("numbers", [(3, 1, 4), (5, 4, 8)])
def test_consistent_numbers_give_nothing(numbers: tuple[int, int, int]) -> None:
    assert codes(f"--speculative-algorithm EAGLE3 {NUMBERS.format(*numbers)}") == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("--speculative-algorithm EAGLE", "launch.algorithm"),  # sglang 21272
        ("--speculative-num-steps 3", "launch.illegal"),
        ("--speculative-eagle-topk 4", "launch.illegal"),
        (NUMBERS.format(2, 2, 99), "launch.illegal"),
        (NUMBERS.format(3, 4, 8) + " --attention-backend trtllm_mha", "launch.illegal"),
        (NUMBERS.format(3, 4, 8) + " --page-size 16 --attention-backend aiter", "launch.illegal"),
        ("--speculative-accept-threshold-single 0.9", "launch.lossy"),
        ("SGLANG_SIMULATE_ACC_LEN=3 --speculative-algorithm EAGLE3", "launch.lossy"),
        ("--quantization fp8", "launch.quantised"),
        ("--kv-cache-dtype=fp8_e5m2", "launch.quantised"),
        ("--speculative-token-map hot.pt", "launch.ignored"),
        ("--speculative-colour blue", "launch.unread"),
        ("--page-size 16", "launch.unread"),
        (
            """--speculative-config '{"model": "x", "num_speculative_tokens": 3}'""",
            "launch.algorithm",
        ),
        (
            """--speculative-config '{"method": "eagle", "num_speculative_tokens": 3}'""",
            "launch.algorithm",
        ),
        (
            """--speculative-config '{"method": "eagle3", "num_speculative_tokens": 0}'""",
            "launch.illegal",
        ),
        ("""--speculative-config '{"method": "eagle3", "num_speculative_tokens": 3,
            "rejection_sample_method": "synthetic"}'""", "launch.lossy"),
    ],
)  # fmt: skip
def test_rules(text: str, code: str) -> None:
    assert code in codes(text)


def test_automatic_numbers_depend_on_the_class() -> None:
    llama, other = (
        next(iter(check_launch(parse_launch("--speculative-algorithm EAGLE3"), arch)))
        for arch in ("LlamaForCausalLM", "Qwen3ForCausalLM")
    )
    assert "5, 4, 8" in llama.title
    assert "3, 1, 4" in other.title
    assert not has_error([llama, other])


@pytest.mark.parametrize(
    "text",
    ["", "words only", "--x 'open", "--speculative-num-steps three",
     "--speculative-config nonsense", "--speculative-config []",
     "--speculative-accept-threshold-acc high"],
)  # fmt: skip
def test_wrong_use(text: str) -> None:
    with pytest.raises(ConfigError):
        codes(text)


def test_vllm_may_spell_its_table_key_by_key() -> None:
    dotted = "--speculative-config.method {} --speculative-config.num_speculative_tokens {}"
    assert codes(dotted.format("eagle3", 3)) == []
    assert codes(dotted.format("eagle3", 0)) == ["launch.illegal"]
    assert codes(dotted.format("ngram", 3)) == ["launch.algorithm"]


def test_only_sglangs_draft_inherits_the_targets_quantisation() -> None:
    table = """--speculative-config '{"method": "eagle3", "num_speculative_tokens": 3}' """
    assert codes(f"{table} --quantization fp8") == []
    assert "launch.quantised" in codes("--speculative-algorithm EAGLE3 --quantization fp8")
