"""Layer ids of every code base: the tables of engine-spec 3.2, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.checkpoint.conventions import (
    architecture,
    find,
    holds_for,
    rules_for,
    table,
    to_physical,
    to_written,
)
from specbench.checkpoint.id_rules import RULES, IdRule, Shift
from specbench.errors import CheckpointError, ConfigError

KIMI = "KimiK25ForConditionalGeneration"
# written in the config -> SGLang up to 0.5.12, from 0.5.14, vLLM, speculators 0.3
KIMI_TABLE: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {
    (): ((2, 30, 58), (2, 30, 58), (2, 30, 58), (3, 31, 59)),
    (2, 30, 58): ((3, 31, 59), (2, 30, 58), (2, 30, 58), (3, 31, 59)),
    (1, 29, 57): ((2, 30, 58), (2, 30, 58), (1, 29, 57), (2, 30, 58)),
    (3, 31, 59): ((4, 32, 60), (3, 31, 59), (3, 31, 59), (4, 32, 60)),
}
ENGINES = ("sglang==0.5.8", "sglang==0.5.14", "vllm==0.32", "speculators==0.3.0")


@pytest.mark.parametrize("ids", KIMI_TABLE, ids=str)
def test_kimi(ids: tuple[int, ...]) -> None:
    for engine, expected in zip(ENGINES, KIMI_TABLE[ids], strict=True):
        rule = find(engine, KIMI)
        got = to_physical(ids, rule, 61) if ids else rule.default(61)
        assert got == expected, engine


# engine, class, ids, layers -> physical
RULE_TABLE = [
    ("sglang==0.5.23", "LlamaForCausalLM", (2, 16, 29), 32, (3, 17, 30)),
    ("sglang==0.5.8", "Qwen3MoeForCausalLM", (1, 23, 44), 48, (2, 24, 45)),
    ("sglang==0.5.14", "Qwen2ForCausalLM", (1, 13, 24), 28, (2, 14, 25)),
    ("sglang==0.5.23", "qwen2_moe", (2, 13, 24), 28, (3, 14, 25)),
    ("sglang==0.5.23", "Qwen3ForCausalLM", (2, 18, 33), 36, (3, 19, 34)),
    ("sglang==0.5.23", "Glm4MoeForCausalLM", (2, 23, 43), 46, (3, 24, 44)),
    ("sglang==0.5.23", "Glm5NextForConditionalGeneration", (2, 39, 75), 78, (3, 40, 76)),
    ("sglang==0.5.12", "DeepseekV3ForCausalLM", (2, 30, 58), 61, (3, 31, 59)),
    ("sglang==0.5.14", "deepseek_v3", (2, 30, 58), 61, (2, 30, 58)),
    ("sglang==0.5.14", "DeepseekV2ForCausalLM", (1, 12, 23), 27, (2, 13, 24)),
    ("sglang==0.5.23", "GlmMoeDsaForCausalLM", (2, 39, 75), 78, (2, 39, 75)),
    ("sglang==0.5.23", "glm4_moe_lite", (2, 20, 40), 47, (2, 20, 40)),
    ("sglang==0.5.23", "GptOssForCausalLM", (2, 18, 36), 36, (2, 18, 36)),
    ("sglang==0.5.23", "GptOssForCausalLM", (1, 17, 32), 36, (2, 18, 33)),
    ("sglang==0.5.10", "GptOssForCausalLM", (1, 17, 32), 36, (2, 18, 33)),
    ("sglang==0.5.23", "minimax_m3_vl", (1, 17, 32), 36, (2, 18, 33)),
    ("vllm==0.16.2", "LlamaForCausalLM", (2, 16, 29), 32, (2, 16, 29)),
    ("vllm==0.32", "LlamaForCausalLM", (0, 16, 32), 32, (0, 16, 32)),
    ("vllm-dflash==0.32", "", (1, 15, 31), 32, (2, 16, 32)),
    ("specforge", "", (1, 29, 57), 61, (2, 30, 58)),
    ("nvidia", "", (1, 29, 57), 61, (2, 30, 58)),
    ("speculators==0.3.0", "", (2, 16, 29), 32, (3, 17, 30)),
    ("speculators==0.9", "", (2, 16, 29), 32, (2, 16, 29)),
    ("hf", "", (2, 16, 29), 32, (2, 16, 29)),
]


@pytest.mark.parametrize(("engine", "arch", "ids", "layers", "expected"), RULE_TABLE, ids=str)
def test_every_rule(
    engine: str, arch: str, ids: tuple[int, ...], layers: int, expected: tuple[int, ...]
) -> None:
    assert to_physical(ids, find(engine, arch), layers) == expected


@pytest.mark.parametrize(("engine", "arch", "ids", "layers", "expected"), RULE_TABLE, ids=str)
def test_every_rule_backwards(
    engine: str, arch: str, ids: tuple[int, ...], layers: int, expected: tuple[int, ...]
) -> None:
    """The numbers to write for the physical layers of the row are those of the row; SGLang since
    0.5.14 reads two writings of some layers alike, and the one without a shift is written."""
    rule = find(engine, arch)
    twice = rule.shift is Shift.FIRST_IS_ONE
    assert to_written(expected, rule, layers) == (expected if twice else ids)


def test_every_rule_has_a_row() -> None:
    """Each rule is read by some row above, or fixed; a rule nobody tests cannot slip in."""
    tested = {find(engine, arch) for engine, arch, *_ in RULE_TABLE}
    assert {rule for rule in RULES if rule.shift is not Shift.FIXED} == tested


@pytest.mark.parametrize(
    ("engine", "arch", "expected"),
    [
        ("sglang==0.5.23", "LlamaForCausalLM", (2, 30, 58)),
        ("sglang==0.5.23", "minimax_m3_vl", (3, 31, 59)),
        ("sglang==0.5.23", "GptOss", (2, 30, 58)),
        ("vllm==0.16", "", (2, 30, 58)),
        ("specforge", "", (2, 30, 58)),
        ("nvidia", "", (2, 30, 58)),
        ("safeailab", "", (2, 30, 58)),
        ("speculators==0.3", "", (3, 31, 59)),
        ("speculators==0.5", "", (2, 30, 58)),
    ],
)
def test_defaults(engine: str, arch: str, expected: tuple[int, ...]) -> None:
    assert find(engine, arch).default(61) == expected


@pytest.mark.parametrize(
    ("engine", "arch", "physical", "reason"),
    [
        ("sglang==0.5.23", "Llama", (0, 16, 29), "embedding"),
        ("sglang==0.5.23", "Llama", (2, 16, 32), "output of the last layer"),
        ("sglang==0.5.23", "DeepseekV3", (1, 16, 29), "start with 1"),
        ("sglang==0.5.23", "Llama", (29, 2, 16), "order of the forward pass"),
        ("sglang==0.5.23", "Llama", (2, 2, 16), "appears twice"),
        ("vllm==0.16", "Llama", (2, 16, 32), "output of the last layer"),
        ("vllm==0.32", "Llama", (2, 16, 33), r"outside 0\.\.32"),
        ("specforge", "", (0, 1, 2), "embedding"),
        ("safeailab", "", (2, 4, 7), "reads no ids"),
        ("hf", "", (2, 16, 32), "output of the last layer"),
    ],
)
def test_what_cannot_be_expressed(
    engine: str, arch: str, physical: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(CheckpointError, match=f"cannot be expressed.*{reason}"):
        to_written(physical, find(engine, arch), 32)


def test_the_way_back_by_hand() -> None:
    assert to_written((2, 30, 58), find("sglang==0.5.12", KIMI), 61) == (1, 29, 57)
    assert to_written((2, 30, 58), find("sglang==0.5.14", KIMI), 61) == (2, 30, 58)
    assert to_written((3, 31, 59), find("vllm==0.32", KIMI), 61) == (3, 31, 59)
    assert to_written((2, 18, 36), find("sglang==0.5.23", "gpt_oss"), 36) == (2, 18, 36)
    assert to_written((2, 16, 29), find("safeailab"), 32) == ()


@given(st.sampled_from(RULES), st.integers(1, 80), st.data())
def test_written_ids_mean_what_was_asked(rule: IdRule, layers: int, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, layers), min_size=1, max_size=4, unique=True).map(sorted)
    physical = tuple(data.draw(some))
    try:
        ids = to_written(physical, rule, layers)
    except CheckpointError:
        return
    assert (to_physical(ids, rule, layers) if ids else rule.default(layers)) == physical


def test_duplicates_and_ids_outside_are_refused() -> None:
    for ids, reason in (((1, 1, 2), "repeat"), ((1, 2, 32), "outside"), ((-1, 2, 3), "embedding")):
        with pytest.raises(CheckpointError, match=reason):
            to_physical(ids, find("sglang==0.5.23", "Llama"), 32)
    with pytest.raises(CheckpointError, match="reads no layer ids"):
        to_physical((1, 2, 3), find("safeailab"), 32)
    with pytest.raises(CheckpointError, match="no layer ids"):
        to_physical((), find("hf"), 32)


def test_versions_that_nobody_read_are_refused() -> None:
    for engine, arch in (("sglang==0.5.13", "DeepseekV3"), ("vllm==0.20", ""), ("sglang==0.4", "")):
        with pytest.raises(ConfigError, match="was not read for that version"):
            find(engine, arch)
    with pytest.raises(ConfigError, match="depends on the version"):
        find("vllm")
    with pytest.raises(ConfigError, match="not a known code base"):
        find("tgi==3.0")
    with pytest.raises(ConfigError, match="not a version"):
        find("sglang==latest")


def test_a_patch_release_belongs_to_its_version() -> None:
    assert holds_for(find("vllm==0.16"), (0, 16, 3))
    assert find("sglang==0.5.12.post1", KIMI).until == (0, 5, 12)


def test_spellings_of_a_class() -> None:
    assert architecture("DeepseekV3ForCausalLM") == architecture("deepseek_v3") == "deepseekv3"


def test_the_table_shows_both_directions() -> None:
    rows = table((2, 30, 58), layers=61, arch="DeepseekV3", physical=(3, 31, 59))
    by_version = {(row.code, row.versions): row for row in rows}
    assert by_version["sglang", "0.5.8 to 0.5.12"].meaning == (3, 31, 59)
    assert by_version["sglang", "0.5.8 to 0.5.12"].write == (2, 30, 58)
    assert by_version["sglang", "from 0.5.14"].write == (3, 31, 59)
    fixed = by_version["safeailab", "all"]
    assert fixed.meaning is None
    assert "reads no layer ids" in fixed.refused
    assert fixed.write is None
    assert fixed.cannot.startswith("it reads no ids and captures [2, 30, 58]")
    assert [row.code for row in table(layers=8, codes=["hf"])] == ["hf"]
    with pytest.raises(ConfigError, match="layers=0"):
        table(layers=0)


def test_a_class_without_its_own_rule_has_the_general_one() -> None:
    assert [rule.classes for rule in rules_for("sglang", "llama")] == [frozenset()]
    assert len(rules_for("sglang", "gpt_oss")) == 2


def test_a_special_rule_ends_the_general_one_in_the_table() -> None:
    rows = [row for row in table((2, 18, 36), layers=36, arch="GptOss") if row.code == "sglang"]
    assert [row.versions for row in rows] == ["0.5.8 to before 0.5.23", "from 0.5.23"]
    assert rows[0].refused
    assert rows[1].meaning == (2, 18, 36)
