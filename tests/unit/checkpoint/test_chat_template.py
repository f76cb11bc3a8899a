"""The chat template of a folder, wherever it is kept; the file of its own wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.checkpoint.chat_template import read_template
from specbench.errors import CheckpointError


def test_the_file_of_its_own_wins(tmp_path: Path) -> None:
    assert read_template(tmp_path) is None
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({"bos_token": "<s>"}))
    assert read_template(tmp_path) is None
    settings.write_text(json.dumps({"chat_template": "old"}))
    found = read_template(tmp_path)
    assert found is not None
    assert (found.source, found.path) == ("old", settings)
    (tmp_path / "chat_template.jinja").write_text("new")
    found = read_template(tmp_path)
    assert found is not None
    assert (found.source, found.path.name) == ("new", "chat_template.jinja")


@pytest.mark.parametrize("value", [7, [], [{"name": "tool_use", "template": "x"}], ["x"]])
def test_what_is_no_template_is_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    with pytest.raises(CheckpointError, match="chat_template holds"):
        read_template(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_template(tmp_path)
