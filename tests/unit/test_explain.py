"""The drawing of a point says how much is drafted, verified and emitted."""

from __future__ import annotations

from specbench.config import SpecConfig
from specbench.explain import explain


def test_the_baseline_drafts_nothing() -> None:
    text = explain(SpecConfig.baseline())
    assert "drafted   nothing" in text
    assert "1 token a step" in text


def test_a_tree_names_its_pool_what_is_kept_and_the_most_tokens() -> None:
    text = explain(SpecConfig(num_steps=3, topk=4, num_draft_tokens=16))
    assert "36 nodes: 4 on level 1, 16 on level 2, 16 on level 3" in text
    assert "the 15 most probable of 36" in text
    assert "16 rows in one target forward: the root and 15 drafts" in text
    assert "1 to 4 tokens a step" in text
    assert "2 draft decodes of 4 rows" in text


def test_nothing_goes_on_from_the_last_level() -> None:
    lines = explain(SpecConfig(num_steps=3, topk=4, num_draft_tokens=16)).splitlines()
    assert [line[2:9] for line in lines if "(4 of them go on)" in line] == ["level 2"]
    assert "go on" not in explain(SpecConfig(num_steps=2, topk=4, num_draft_tokens=16))


def test_few_nodes_bound_the_depth_that_can_be_accepted() -> None:
    assert "1 to 3 tokens" in explain(SpecConfig(num_steps=5, topk=2, num_draft_tokens=3))
