"""The command prints the figures of the shipped pair and writes them as JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from specbench import probe_cli
from specbench.cli import main
from specbench.engine.probe_sums import ReplySums
from specbench.probe_figures import group_figures
from tests.tiny import shared_pair


def reply(
    positions: int, hits: int, alive: tuple[int, ...], steps: int, accepted: int
) -> ReplySums:
    return ReplySums(
        request_id="r",
        category="c",
        positions=positions,
        known=(hits,) * len(alive),
        hits=(hits,) * len(alive),
        alive=alive,
        starts=(positions,) * len(alive),
        verify_steps=steps,
        accepted=accepted,
    )


def test_figures_pool_sums_and_not_means() -> None:
    found = group_figures([reply(10, 9, (9, 5), 4, 6), reply(30, 0, (0, 0), 30, 0)])
    assert found["accuracy_all"][0]["value"] == pytest.approx(9 / 40)
    assert found["implied_accept_length"]["value"] == pytest.approx(1 + 14 / 40)
    assert found["walk_accept_length"]["value"] == pytest.approx(1 + 6 / 34)
    assert found["walk_accept_length"]["low"] is None  # two requests are too few


def test_nothing_right_is_zero_without_an_interval() -> None:
    found = group_figures([reply(10, 0, (0,), 10, 0)])
    assert found["survival"] == [{"value": 0.0, "low": None, "high": None}]


def test_text_that_is_not_the_targets_own_has_no_walk() -> None:
    """Survival counts the starts that can be judged, which are fewer from step to step."""
    foreign = replace(reply(10, 6, (6, 2), 0, 0), starts=(10, 4))
    found = group_figures([foreign], own_text=False)
    assert [cell["value"] for cell in found["survival"]] == pytest.approx([0.6, 0.5])
    assert found["starts"] == [10, 4]
    nothing = {"value": None, "low": None, "high": None}
    assert found["implied_accept_length"] == found["walk_accept_length"] == nothing
    gone = replace(foreign, starts=(10, 0), alive=(6, 0))
    assert group_figures([gone], own_text=False)["survival"][1] == nothing


def test_trees_stand_beside_the_chain() -> None:
    grown = replace(reply(10, 6, (6, 2), 5, 5), tree=(9, 5), tree_steps=4, tree_accepted=6)
    found = group_figures([grown])
    assert [cell["value"] for cell in found["tree_match"]] == pytest.approx([0.9, 0.5])
    assert found["tree_walk_accept_length"]["value"] == pytest.approx(1 + 6 / 4)
    assert group_figures([reply(10, 6, (6, 2), 5, 5)])["tree_match"] == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "--features d"),
        (["--target", "t"], "--target t --draft DRAFT --features d"),
        (
            ["--target", "a b", "--draft", "x", "--d2t", "direct", "--num-steps", "3"],
            "--target 'a b' --draft x --features d --d2t direct --num-steps 3",
        ),
        (
            ["--target", "t", "--draft", "x", "--capture-default"],
            "--target t --draft x --features d --capture-default",
        ),
    ],
)
def test_the_command_that_scores_a_dump_names_the_pair_that_was_given(
    given: list[str], told: str
) -> None:
    parser = argparse.ArgumentParser()
    probe_cli.add_parser(parser.add_subparsers())
    args = parser.parse_args(["probe", *given, "--dump", "d"])
    assert probe_cli._score_words(args) == f"specbench probe {told}"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probe.json"
    flags = ["--requests", "6", "--max-tokens", "12", "--num-steps", "2", "--positions", "60"]
    assert main(["probe", *flags, "--json", str(path)]) == 0
    facts = json.loads(path.read_text())
    shown = capsys.readouterr().out
    assert facts["requests_left_out"] == 1
    assert f"{facts['positions']} positions of 5 requests, 1 left out" in shown
    assert (facts["capture_layers"], facts["tree"]) == ([2, 4, 7], "k2b4n16")
    parts = [group for name, group in facts["groups"].items() if name != "all"]
    whole = facts["groups"]["all"]
    assert sum(p["positions"] for p in parts) == whole["positions"]
    assert 1 < whole["walk_accept_length"]["value"] < whole["tree_walk_accept_length"]["value"] <= 3
    values = [[c["value"] for c in whole[name]] for name in ("survival", "tree_match")]
    assert all(chain < tree for chain, tree in zip(*values, strict=True))
    assert "tree k2b4n16" in shown


def test_dump_and_features_give_the_figures_of_the_live_probe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = shared_pair()
    pair = ["--target", str(tiny.target), "--draft", str(tiny.draft), "--num-steps", "3"]
    texts = ["--requests", "3", "--max-tokens", "9"]
    folder, out = tmp_path / "dump", tmp_path / "out.json"
    figures = {}
    for name, words in (
        ("live", [*texts, "--json", str(out)]),
        ("dump", [*texts, "--dump", str(folder), "--layout", "speculators"]),
        ("stored", ["--features", str(folder), "--json", str(out)]),
    ):
        assert main(["probe", *pair, *words]) == 0
        figures[name] = json.loads(out.read_text())
    assert figures["live"]["groups"] == figures["stored"]["groups"]
    assert sorted(p.name for p in folder.glob("hs_*")) == [f"hs_{i}.safetensors" for i in range(3)]
    printed = capsys.readouterr().out
    again = f"{' '.join(pair[:4])} --features {folder} --num-steps 3"
    assert f"Score a draft on them: specbench probe {again}\n" in printed  # in one line
    shown = "".join(printed.split())  # a long path breaks lines anywhere
    assert "physicallayers[1,2,3],float32,layoutspeculators" in shown
    assert "laststateisbeforethefinalnorm" in shown
    assert main(["probe", *pair, *texts, "--dump", str(folder)]) == 2
    told = capsys.readouterr()
    assert "Choose another, or go on" in told.err
    assert f"note: --draft {tiny.draft} is not read" in told.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num-steps", "0"], "--num-steps 0"),
        (["--topk", "1", "--num-draft-tokens", "9"], "--topk 1 drafts a chain of 5"),
        (["--topk", "2", "--num-steps", "1", "--num-draft-tokens", "9"], "num_draft_tokens=9"),
        (["--layers", "1,2"], "--layers: has no meaning without --dump"),
        (["--features", "x", "--workload", "default"], "--workload: has no meaning with"),
        (["--dump", "x", "--json", "y"], "--json: has no meaning with --dump"),
        (["--dump", "x", "--capture-ids", "1,2"], "--capture-ids: has no meaning with --dump,"),
        (["--dump", "x", "--layout", "specforge", "--layers", "1", "--d2t", "direct"],
         "--d2t: has no meaning with --dump, which reads no draft here"),
        (["--dump", "x", "--features", "y"], "--dump and --features"),
        (["--dtype", "bfloat16"], "flips close calls"),
        (["--dump", "x", "--shard-mb", "9999"], "--shard-mb 9999"),
        (["--capture-ids", "1,2,3", "--capture-default"], "are both given"),
        (["--features", "/nowhere"], "/nowhere is not there"),
    ],
)  # fmt: skip
def test_flags_that_cannot_be(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = shared_pair()
    assert main(["probe", "--target", str(tiny.target), "--draft", str(tiny.draft), *words]) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")
