"""A checkpoint folder: its config.json and all tensors of its one or many safetensors files."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.checkpoint.headers import TensorEntry, parse_json, read_header
from specbench.errors import CheckpointError

MAX_CONFIG_BYTES = 4 * 1024 * 1024
MAX_INDEX_BYTES = 48 * 1024 * 1024  # Kimi-K2's experts with three scales each take 36 MB
MAX_CONFIG_DEPTH = 32
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What a checkpoint folder holds; ``files`` are the safetensors files, sorted."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, TensorEntry]
    files: tuple[Path, ...]


def open_folder(path: Path | str) -> Folder:
    """Read config and headers of ``path``; no weights are loaded.

    Raises:
        CheckpointError: a missing folder or config, a pickle checkpoint, broken files.
    """
    path = Path(path)
    require_folder(path)
    config = read_json(path / "config.json")
    index = path / INDEX_NAME
    listed = _weight_map(index) if index.exists() else None
    files = _files(path, listed)
    tensors: dict[str, TensorEntry] = {}
    for file in files:
        for name, entry in read_header(file).items():
            if name in tensors:
                raise CheckpointError(
                    f"tensor {name!r} is in {tensors[name].path.name} and in {file.name}.",
                    expected="Each tensor once.",
                )
            tensors[name] = entry
    if listed is not None:
        _check_index(index, listed, tensors)
    return Folder(path=path, config=config, tensors=tensors, files=files)


def require_folder(path: Path) -> None:
    """Refuse what is no folder; a name that may be a model hub's is told how to get one.

    Raises:
        CheckpointError: a file, or nothing, is there.
    """
    if is_folder(path):
        return
    todo = ""
    if _HUB_ID.fullmatch(str(path)) and not os.path.lexists(path):
        todo = (
            f"Models are not downloaded; if this is the name of one on a hub: hf download {path} "
            "--local-dir DIR, and give DIR."
        )
    raise CheckpointError(
        f"{path} is not a folder.",
        expected="A folder with config.json and safetensors files.",
        todo=todo,
    )


def is_folder(path: Path) -> bool:
    """True for a folder that can be seen; false for a name that no file can have, too."""
    try:
        return path.is_dir()
    except OSError:
        return False


def read_json(path: Path, most: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """A JSON table of at most ``most`` bytes and bounded nesting.

    Raises:
        CheckpointError: missing, too large, not JSON, or not a table.
    """
    try:
        if path.stat().st_size > most:
            raise CheckpointError(f"{path} is larger than {most} bytes.")
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}.",
            todo="Point to a folder in Hugging Face layout.",
        ) from error
    table = parse_json(path, text, MAX_CONFIG_DEPTH)
    if not isinstance(table, dict):
        raise CheckpointError(f"{path} holds a {type(table).__name__}.", expected="A table.")
    return table


def _files(path: Path, listed: Mapping[str, str] | None) -> tuple[Path, ...]:
    if listed is not None:
        return tuple(path / name for name in sorted(set(listed.values())))
    found = tuple(sorted(path.glob("*.safetensors")))
    if len(found) == 1:
        return found
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise CheckpointError(
            f"{path} holds {len(found)} safetensors files ({names}) and no {INDEX_NAME}.",
            todo="Keep one file, or add the index that says which tensor is where.",
        )
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES)
    if pickles:
        raise CheckpointError(
            f"{path} holds only pickle files ({', '.join(pickles)}).",
            expected="safetensors only: a pickle runs code when it is loaded.",
            todo="Convert it to safetensors where you trust it.",
        )
    raise CheckpointError(f"{path} holds no safetensors file.", expected="model.safetensors.")


def _weight_map(index: Path) -> dict[str, str]:
    table = read_json(index, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{index} has no weight_map.", expected="Tensor name to file name.")
    odd = [name for name in table.values() if not isinstance(name, str)]
    odd = odd or [name for name in set(table.values()) if Path(name).name != name]
    if odd:
        raise CheckpointError(
            f"{index} names the file {reprlib.repr(odd[0])}.",
            expected="Plain file names beside it.",
        )
    return table


def _check_index(
    index: Path, claimed: Mapping[str, str], tensors: Mapping[str, TensorEntry]
) -> None:
    wrong = [n for n, file in claimed.items() if n not in tensors or tensors[n].path.name != file]
    extra = [n for n in tensors if n not in claimed]
    if wrong or extra:
        raise CheckpointError(
            f"{index} and its files differ: misplaced {wrong[:8]}, unlisted {extra[:8]}.",
            todo="Copy the whole checkpoint again.",
        )
