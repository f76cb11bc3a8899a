"""Folders: one file, many with an index, or a clear refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from specbench.checkpoint.folder import INDEX_NAME, open_folder
from specbench.errors import CheckpointError
from tests.tiny import shared_pair


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(shared_pair().target, tmp_path / "model"))


def shard(folder: Path) -> dict[str, str]:
    """Split the one file in two and write the index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    placed: dict[str, str] = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-{i}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        placed |= dict.fromkeys(part, file)
    write_index(folder, placed)
    return placed


def write_index(folder: Path, placed: dict[str, str]) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": placed}))


def test_shards_are_one_checkpoint(folder: Path) -> None:
    whole = open_folder(folder)
    shard(folder)
    parts = open_folder(folder)
    assert set(parts.tensors) == set(whole.tensors)
    assert len(parts.files) == 2


def test_an_index_that_lies(folder: Path) -> None:
    placed = shard(folder)
    write_index(folder, {**placed, "ghost": "model-0.safetensors"})
    with pytest.raises(CheckpointError, match="ghost"):
        open_folder(folder)
    name = next(iter(placed))
    write_index(folder, {n: f for n, f in placed.items() if n != name})
    with pytest.raises(CheckpointError, match="unlisted"):
        open_folder(folder)
    write_index(folder, {**placed, name: "../model-0.safetensors"})
    with pytest.raises(CheckpointError, match="Plain file names"):
        open_folder(folder)


def test_pickles_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="safetensors only"):
        open_folder(folder)


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a folder"):
        open_folder(tmp_path / "nothing")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no safetensors file"):
        open_folder(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        open_folder(folder)


def test_two_files_without_an_index(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "other.safetensors")
    with pytest.raises(CheckpointError, match="2 safetensors files"):
        open_folder(folder)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1, "a": 2}', "[" * 100 + "]" * 100])
def test_a_config_that_is_no_table(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_folder(folder)


def test_a_name_that_no_file_can_have_is_no_folder() -> None:
    with pytest.raises(CheckpointError, match="is not a folder"):
        open_folder("x" * 4000)


def test_a_name_of_a_hub_is_told_that_nothing_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="hf download org/Model-8B --local-dir DIR"):
        open_folder("org/Model-8B")
    (tmp_path / "file").touch()
    for other in (str(tmp_path / "file"), str(tmp_path / "none"), "none", "../a"):
        with pytest.raises(CheckpointError) as refused:
            open_folder(other)
        assert "hf download" not in str(refused.value)
