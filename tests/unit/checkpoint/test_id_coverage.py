"""What was read of layer ids, and what is said where nobody has read."""

from __future__ import annotations

import pytest

from specbench.checkpoint.conventions import architecture, find
from specbench.checkpoint.families import FAMILIES
from specbench.checkpoint.id_coverage import (
    GENERAL,
    NEWEST,
    SPECIAL,
    check_arch,
    gaps,
    newest,
    special_classes,
    unverified,
)
from specbench.checkpoint.id_rules import RULES
from specbench.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Nonsense", "One of: DeepseekV2, DeepseekV3"),
        ("DeepseekV4ForCausalLM", "Nearest: DeepseekV2, DeepseekV3"),
        ("Lama", "Nearest: Llama,"),
        ("kimi-k2.6", "Nearest: KimiK2, KimiK25,"),
    ],
)
def test_a_class_that_nobody_read_is_an_error_with_its_neighbours(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match="the rules for that class were not read") as caught:
        check_arch(name)
    assert near in str(caught.value)


def test_every_family_and_every_class_of_a_rule_is_known_in_any_spelling() -> None:
    for family in FAMILIES:
        for name in family.architectures:
            check_arch(name)
    for name in ("deepseek_v3", "Qwen2MoeForCausalLM", "minimax_m3_vl", "Glm4MoeForCausalLM", ""):
        check_arch(name)
    assert frozenset().union(*(rule.classes for rule in RULES)) == SPECIAL
    assert not GENERAL & SPECIAL
    assert len(special_classes().split(", ")) == len(SPECIAL)
    assert {architecture(name) for name in special_classes().split(", ")} == SPECIAL


def test_versions_between_two_rules_are_named_and_refused() -> None:
    assert gaps("DeepseekV3")[0] == "sglang before 0.5.8, after 0.5.12 and before 0.5.14"
    assert gaps("GptOss")[0] == "sglang before 0.5.8"  # the general rule holds up to its own one
    general = gaps()
    assert general[1:] == [
        "vllm after 0.16 and before 0.32",
        "vllm-dflash before 0.32",
        "speculators after 0.3 and before 0.5",
    ]
    for engine, arch in (
        ("sglang==0.5.13", "DeepseekV3"),
        ("vllm==0.17", ""),
        ("speculators==0.4", ""),
    ):
        with pytest.raises(ConfigError, match="was not read for that version"):
            find(engine, arch)


def test_a_version_that_is_taken_on_trust_is_said() -> None:
    assert unverified("sglang==0.5.23") == unverified("vllm==0.32.1") == unverified("hf") == ""
    assert unverified("sglang==0.5.24").startswith("sglang 0.5.24 was not read, the newest")
    assert unverified("vllm == 1") == unverified("VLLM==1") != ""
    assert "no version of sglang is named" in unverified("sglang")
    for code in NEWEST:
        assert code in newest()
    with_versions = {rule.code for rule in RULES if rule.since or rule.until}
    assert with_versions == set(NEWEST)


@pytest.mark.parametrize("engine", ["sglang==", "sglang== ", "vllm=="])
def test_an_empty_version_is_no_version(engine: str) -> None:
    with pytest.raises(ConfigError, match="names no version"):
        find(engine)
