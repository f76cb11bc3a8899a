"""One set of flags for every command that reads a draft."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.cli import build_parser
from specbench.config import EngineConfig
from specbench.draft_flags import add_draft_flags
from specbench.engine.pair import ModelPair
from specbench.errors import CheckpointError, ConfigError
from specbench.flags import engine_config
from tests.tiny import TinyPair, write_pair

COMMANDS = (
    ["sweep"],
    ["serve"],
    ["probe"],
    ["doctor"],
    ["convert", "--draft", "d", "--target", "t", "--to", "specforge", "--out", "o"],
)


def test_nothing_given_is_none() -> None:
    parser = argparse.ArgumentParser()
    add_draft_flags(parser)
    args = parser.parse_args([])
    assert (args.capture_ids, args.capture_default, args.d2t) == (None, None, None)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_every_command_that_reads_a_draft_has_them(command: list[str]) -> None:
    args = build_parser().parse_args([*command, "--capture-ids", "1,2,3", "--d2t", "direct"])
    assert (args.capture_ids, args.d2t) == ("1,2,3", "direct")


def test_it_reaches_the_engine() -> None:
    args = build_parser().parse_args(["sweep", "--d2t", "direct"])
    assert engine_config(args, max_batch_size=1).d2t == "direct"
    with pytest.raises(ConfigError, match="d2t='both' is unknown"):
        EngineConfig(d2t="both")


@pytest.fixture
def direct(tmp_path: Path) -> tuple[TinyPair, torch.Tensor]:
    """A pair whose map holds target ids, and those ids."""
    pair = write_pair(tmp_path)
    path = pair.draft / "model.safetensors"
    tensors = load_file(path)
    ids = tensors["d2t"] + torch.arange(len(tensors["d2t"]))
    save_file({**tensors, "d2t": ids}, path)
    return pair, ids


def test_a_direct_map_is_refused_unless_asked_for(direct: tuple[TinyPair, torch.Tensor]) -> None:
    pair, ids = direct
    with pytest.raises(CheckpointError, match=r"a direct map.*Give --d2t direct"):
        ModelPair.load(pair.target, pair.draft, EngineConfig(max_len=64))
    loaded = ModelPair.load(pair.target, pair.draft, EngineConfig(max_len=64, d2t="direct"))
    assert loaded.draft is not None
    assert loaded.draft_spec is not None
    assert torch.equal(loaded.draft.target_ids, ids)
    assert [c.code for c in loaded.draft_spec.caveats] == ["d2t_direct"]
    assert json.dumps(loaded.draft_spec.d2t_policy) == '"direct: target ids, as asked"'
