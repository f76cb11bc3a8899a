from __future__ import annotations

import pytest

from specbench.errors import WorkloadError
from specbench.prompts.prompt import SYNTHETIC
from specbench.prompts.synthetic import BLOCK_WORDS, blocks, synthetic_prompts, words


def test_words_are_those_of_the_seed_on_every_machine() -> None:
    assert len(words(100, "a").split(" ")) == 100
    assert words(5, "a") == words(9, "a").rsplit(" ", 4)[0]
    assert words(5, "a") != words(5, "b")
    assert words(6, "specbench") == "please power send human melody depend"


def test_a_set_has_the_length_number_and_seed_that_its_name_says() -> None:
    prompts = synthetic_prompts("32x4@7")
    assert [len(p.turns[0].split(" ")) for p in prompts] == [32] * 4
    assert len({p.turns[0] for p in prompts}) == 4
    assert {p.category for p in prompts} == {SYNTHETIC}
    assert prompts == synthetic_prompts("32x4@7")
    assert prompts != synthetic_prompts("32x4")
    assert synthetic_prompts("32x4") == synthetic_prompts("32x4@0")


@pytest.mark.parametrize("spec", ["", "32", "32x", "x4", "0x4", "32x0", "9999999x999", "-1x4", "a"])
def test_a_name_without_sense_is_refused(spec: str) -> None:
    with pytest.raises(WorkloadError, match="synthetic:"):
        synthetic_prompts(spec)


def test_equal_blocks_are_equal_text() -> None:
    first = blocks(700, [4, 5], "x").split(" ")
    second = blocks(600, [4, 6], "y").split(" ")
    assert (len(first), len(second)) == (700, 600)
    assert first[:BLOCK_WORDS] == second[:BLOCK_WORDS]
    assert first[BLOCK_WORDS : BLOCK_WORDS + 50] != second[BLOCK_WORDS : BLOCK_WORDS + 50]
    assert blocks(3, [], "x") == words(3, "x")
    assert len(blocks(BLOCK_WORDS + 3, [4], "x").split(" ")) == BLOCK_WORDS + 3
